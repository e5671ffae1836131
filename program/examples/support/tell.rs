//! How an example tells its answer.

use std::error::Error;
use std::process::ExitCode;

use gleaner_program::Failure;

/// `Err` says what is wrong with it; `None`: only another rank knows it.
pub(crate) type Answer = Result<Option<String>, String>;

/// Exit 0: the answer is right; 1: it is wrong; 2: there is none.
pub(crate) fn tell(name: &str, answer: Result<Answer, Failure>) -> ExitCode {
    match answer {
        Ok(Ok(None)) => ExitCode::SUCCESS,
        Ok(Ok(Some(answer))) => {
            println!("{name}: answer ok: {answer}");
            ExitCode::SUCCESS
        }
        Ok(Err(wrong)) => {
            eprintln!("{name}: wrong answer: {wrong}");
            ExitCode::from(1)
        }
        Err(error) => {
            eprintln!("{name}: {}", chain(&*error));
            ExitCode::from(2)
        }
    }
}

fn chain(error: &(dyn Error + 'static)) -> String {
    match error.source() {
        Some(source) if !error.to_string().ends_with(&source.to_string()) => {
            format!("{error}: {}", chain(source))
        }
        _ => error.to_string(),
    }
}
