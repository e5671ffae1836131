//! Errors in one line.

use std::error::Error;

/// An error and all that caused it: `cannot lay its files: no space left`.
pub(crate) fn one_line(error: &dyn Error) -> String {
    let cause = error.source().map(|cause| format!(": {}", one_line(cause)));
    format!("{error}{}", cause.unwrap_or_default())
}
