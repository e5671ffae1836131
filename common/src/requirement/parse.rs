//! Reading a requirement.
//!
//! ```text
//! any = all *("||" all)          all = one *("&&" one)
//! one = "!" one | "(" any ")" | has("NAME") | ATTRIBUTE COMPARISON VALUE
//! ```

use winnow::ascii::multispace0;
use winnow::combinator::{alt, cut_err, delimited, eof, fail, preceded, separated, terminated};
use winnow::error::{ContextError, StrContext, StrContextValue};
use winnow::prelude::*;
use winnow::token::{one_of, take_while};

use super::{Comparison, Condition, DEPTH_MAX, Expression, TEXT_BYTES_MAX, Value};
use crate::units::parse_size;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    #[error("the requirement takes {0} bytes: expected at most {TEXT_BYTES_MAX}")]
    TooLong(usize),
    #[error("the requirement has {0} brackets and `!`: expected at most {DEPTH_MAX}")]
    TooDeep(usize),
    #[error("the requirement does not read from `{rest}` on: expected {expected}")]
    Syntax { rest: String, expected: String },
}

pub(super) fn conditions(text: &str) -> Result<Vec<Condition>, RequirementError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(RequirementError::TooLong(text.len()));
    }
    // Each of them is one more call of the reader by itself.
    let depth = text.chars().filter(|it| matches!(it, '(' | '!')).count();
    if depth > DEPTH_MAX {
        return Err(RequirementError::TooDeep(depth));
    }
    if text.is_empty() {
        return Ok(vec![]);
    }
    let joined = separated(1.., one.with_taken(), mark("&&"));
    let alone = any.with_taken().map(|one| vec![one]);
    let mut whole = alt((terminated(joined, end), terminated(alone, end)));
    let read: Vec<(Expression, &str)> = whole.parse(text).map_err(|error| {
        let rest = error.input().get(error.offset()..).unwrap_or_default();
        let rest = if rest.is_empty() { "the end".to_owned() } else { rest.trim().to_owned() };
        RequirementError::Syntax { rest, expected: expected(error.inner()) }
    })?;
    let of = |(expression, text): (_, &str)| Condition { text: text.trim().to_owned(), expression };
    Ok(read.into_iter().map(of).collect())
}

/// What stood in the reader's way, in its own words.
fn expected(error: &ContextError) -> String {
    let wanted = error.context().filter_map(|context| match context {
        StrContext::Expected(wanted) => Some(wanted.to_string()),
        StrContext::Label(_) | _ => None,
    });
    let wanted: Vec<_> = wanted.collect();
    if wanted.is_empty() {
        return "a condition such as `memory >= 4GiB`".into();
    }
    wanted.join(" or ")
}

fn end(input: &mut &str) -> ModalResult<()> {
    (multispace0, eof).void().context(wanted("`&&`, `||` or the end")).parse_next(input)
}

fn any(input: &mut &str) -> ModalResult<Expression> {
    let parts = separated(1.., all, mark("||"));
    parts.map(|parts| joined(parts, Expression::Any)).parse_next(input)
}

fn all(input: &mut &str) -> ModalResult<Expression> {
    let parts = separated(1.., one, mark("&&"));
    parts.map(|parts| joined(parts, Expression::All)).parse_next(input)
}

fn joined(mut parts: Vec<Expression>, by: fn(Vec<Expression>) -> Expression) -> Expression {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => {
            parts.extend(last);
            by(parts)
        }
    }
}

fn one(input: &mut &str) -> ModalResult<Expression> {
    let negated = preceded('!', cut_err(one)).map(|it| Expression::Not(Box::new(it)));
    let bracketed = delimited('(', cut_err(any), cut_err(mark(")")));
    let has = preceded("has", delimited(mark("("), cut_err(text), cut_err(mark(")"))));
    let has = has.map(Expression::Has);
    spaced(alt((negated, bracketed, has, comparison, fail)))
        .context(wanted("a condition such as `memory >= 4GiB`"))
        .parse_next(input)
}

fn comparison(input: &mut &str) -> ModalResult<Expression> {
    let (attribute, (how, value)) = (name, (cut_err(how), cut_err(value))).parse_next(input)?;
    Ok(Expression::Compare { attribute, how, value })
}

fn name(input: &mut &str) -> ModalResult<String> {
    let first = one_of(|c: char| c.is_ascii_alphabetic());
    let rest = take_while(0.., |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
    (first, rest).take().map(str::to_owned).parse_next(input)
}

pub(super) fn is_name(text: &str) -> bool {
    name.parse(text).is_ok()
}

fn how(input: &mut &str) -> ModalResult<Comparison> {
    let longer = alt((
        "==".value(Comparison::Equal),
        "!=".value(Comparison::Unequal),
        "<=".value(Comparison::LessOrEqual),
        ">=".value(Comparison::MoreOrEqual),
    ));
    let shorter = alt((
        "<".value(Comparison::Less),
        ">".value(Comparison::More),
        "~".value(Comparison::Contains),
    ));
    let how = spaced(alt((longer, shorter)));
    { how }.context(wanted("`==`, `!=`, `<`, `<=`, `>`, `>=` or `~`")).parse_next(input)
}

fn value(input: &mut &str) -> ModalResult<Value> {
    let flag = alt(("true".value(true), "false".value(false))).map(Value::Flag);
    spaced(alt((text.map(Value::Text), number.map(Value::Number), flag)))
        .context(wanted("a number, a size such as 4GiB, a \"text\", true or false"))
        .parse_next(input)
}

fn number(input: &mut &str) -> ModalResult<f64> {
    let digits = take_while(1.., |c: char| c.is_ascii_digit() || c == '.');
    let unit = take_while(0.., |c: char| c.is_ascii_alphabetic());
    #[expect(clippy::cast_precision_loss, reason = "no memory is told apart by a byte in 2^53")]
    let size = |written: &str| parse_size(written).ok().map(|bytes| bytes as f64);
    let number = |written: &str| written.parse().ok().or_else(|| size(written));
    (digits, unit).take().verify_map(number).parse_next(input)
}

fn text(input: &mut &str) -> ModalResult<String> {
    delimited('"', take_while(0.., |c| c != '"'), cut_err('"'))
        .map(str::to_owned)
        .context(wanted("a text in double quotes"))
        .parse_next(input)
}

fn mark<'i>(sign: &'static str) -> impl ModalParser<&'i str, (), ContextError> {
    spaced(sign).void().context(StrContext::Expected(StrContextValue::StringLiteral(sign)))
}

fn spaced<'i, O>(
    parser: impl ModalParser<&'i str, O, ContextError>,
) -> impl ModalParser<&'i str, O, ContextError> {
    preceded(multispace0, parser)
}

fn wanted(what: &'static str) -> StrContext {
    StrContext::Expected(StrContextValue::Description(what))
}
