//! The coordinator's own scheduling code on a virtual clock, fed by collected
//! usage logs and program traces.
