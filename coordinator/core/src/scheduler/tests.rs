//! The scheduler by the examples of the four works, by properties, and beside
//! slow ones that do what a definition says.

mod agreements;
mod bench;
mod brute;
mod divisions;
mod examples;
mod patience;
mod properties;
mod rivals;
