//! One guest place.
