//! A breach of a rule, and where.

use std::fmt;

/// One violation of one rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    pub(crate) path: String,
    /// Line number, counted from 1.
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    /// Description of the violation, and what to do instead.
    pub(crate) message: String,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, rule: &'static str, message: impl Into<String>) -> Finding {
        Finding { path: path.to_string(), line, rule, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.message)
    }
}
