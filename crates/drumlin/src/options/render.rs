//! Text output of the option list: the help for a terminal, and the tables of `docs/options.md`.

use super::defs::{KeyspaceOptions, Options};
use super::parse::{bounds, print};
use super::registry::{OptionDef, OptionSet};
use std::fmt::Write;

/// Returns the help text for a terminal: every option with its default, bounds and description. *live* options can be
/// changed while the store is open.
///
/// ```
/// let help = drumlin::options_help();
/// assert!(help.contains("memory_budget = 512MiB"));
/// ```
pub fn options_help() -> String {
    let mut out = String::new();
    for_each_group(|title, rows| {
        let _ = writeln!(out, "{title}:");
        for (def, default) in rows {
            let live = if def.live { ", live" } else { "" };
            let _ = writeln!(out, "  {} = {default}   [{}{live}]", def.name, described(def));
            let _ = writeln!(out, "      {}", description(def));
        }
        out.push('\n');
    });
    out
}

/// Returns the list of options as Markdown, which is the text of `docs/options.md` in the repository. It does not
/// depend on the feature `experiments`.
pub fn options_markdown() -> String {
    let mut out = String::from(
        "# Options\n\n\
         Generated from the option list in `crates/drumlin/src/options/defs.rs`; do not edit.\n\n\
         Programs set options of the store with `Builder::set` and `Db::set_option`, and options of a keyspace with\n\
         `Db::keyspace_with` and `Keyspace::set_option`. The store keeps them. Options marked *live* can be changed\n\
         while the store is open. All others are set when the store is opened. Few programs need options of the\n\
         expert tier. Byte sizes take a unit: `64MiB`, `64M` and `67108864` are the same; `64MB` is 64 million.\n",
    );
    for_each_group(|title, rows| {
        let _ = write!(out, "\n## {title}\n\n");
        out.push_str("| name | default | unit | bounds | live | what it does |\n|---|---|---|---|---|---|\n");
        for (def, default) in rows.into_iter().filter(|(def, _)| !def.experiment) {
            let live = if def.live { "live" } else { "" };
            let cells = [&bounds(def), live, &description(def)].map(|cell| cell.replace('|', "\\|"));
            let [bounds, live, description] = cells;
            let (name, unit) = (def.name, def.unit);
            let _ = writeln!(out, "| `{name}` | `{default}` | {unit} | {bounds} | {live} | {description} |");
        }
    });
    out
}

/// Returns the values that the option takes, with their unit.
fn described(def: &OptionDef) -> String {
    match def.unit {
        // Byte sizes have their unit in the bounds.
        "" | "bytes" => bounds(def),
        unit => format!("{} {unit}", bounds(def)),
    }
}

fn description(def: &OptionDef) -> String {
    let mut text = def.doc.trim().to_owned();
    if let Some(zero) = def.zero {
        let _ = write!(text, " 0: {zero}.");
    }
    text
}

type Row = (&'static OptionDef, String);

fn for_each_group(mut write: impl FnMut(&str, Vec<Row>)) {
    for expert in [false, true] {
        let tier = if expert { ", expert tier" } else { "" };
        write(&format!("Store{tier}"), rows::<Options>(expert));
        write(&format!("Keyspace{tier}"), rows::<KeyspaceOptions>(expert));
    }
}

fn rows<S: OptionSet>(expert: bool) -> Vec<Row> {
    let defaults = S::default();
    let all = S::DEFS.iter().enumerate().filter(|(_, def)| def.expert == expert);
    all.map(|(position, def)| (def, print(def, &defaults.value(position)))).collect()
}
