//! What a subprogram links to talk to its peers and its agent.
