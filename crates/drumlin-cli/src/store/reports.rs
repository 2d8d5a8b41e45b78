//! Data that the commands print, besides the engine's own reports.

use serde::Serialize;

/// Description of an engine option.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct OptionRow {
    /// Name, as `--set` takes it.
    pub(crate) name: &'static str,
    /// Scope: `store` or `keyspace`.
    pub(crate) scope: &'static str,
    /// Unit of the value; empty for plain numbers and words.
    pub(crate) unit: &'static str,
    /// Default value.
    pub(crate) default: String,
    /// Description of the allowed values.
    pub(crate) bounds: String,
    /// Whether the option can be changed while the store is open.
    pub(crate) live: bool,
    /// Whether the option is for experts only.
    pub(crate) expert: bool,
    /// Description of the option.
    pub(crate) about: &'static str,
}

impl OptionRow {
    /// Returns the description of the option as lines of text.
    pub(crate) fn text(&self) -> String {
        let OptionRow { name, scope, unit, default, bounds, live, about, .. } = self;
        let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
        let change =
            if *live { "can be changed while the store is open" } else { "takes effect at the next open" };
        format!("{name} = {default}{unit}\n  of a {scope}; {bounds}{unit}; {change}\n  {about}\n")
    }
}
