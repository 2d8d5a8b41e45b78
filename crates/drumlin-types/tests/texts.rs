//! Text tests of legality: a drawn tree, a command, and the result.
//!
//! - `tree DRAWING` sets the tree.
//! - `legal PLAN` checks the plan.
//! - `close PLAN` prints the closed plan.
//! - `check` checks that the tree is well-formed.
//! - `admit PLAN` gives the plan the next ticket without closing it, prints the tickets that it waits for, and adds its
//!   output to the projected tree.
//! - `show` prints the current tree.

#![expect(clippy::disallowed_methods, reason = "tests read and damage files on purpose")]

use drumlin_types::contract::draw::{Drawing, parse_plan, parse_tree, plain_file, show_plan};
use drumlin_types::contract::legal::{check, close_plan, legal, spans, waits};
use drumlin_types::contract::{FileState, PieceId, PieceView, Plan, RunTag, RunView, TreeView};
use drumlin_types::{KeyRange, RunId, TableId, Ticket, text_test};

#[derive(Default)]
struct Desk {
    tree: TreeView,
    pieces: Vec<PieceView>,
}

impl Desk {
    fn run(&mut self, line: &str) -> Result<String, String> {
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        let plan = || parse_plan(&self.tree, rest);
        match command {
            "tree" => {
                self.tree = parse_tree(rest)?;
                self.pieces.clear();
                Ok(String::new())
            }
            "legal" => legal(&self.tree, &plan()?).map(|()| "legal".into()).map_err(|e| e.to_string()),
            "close" => {
                let plan = close_plan(&self.tree, &plan()?).map_err(|e| e.to_string())?;
                Ok(show_plan(&self.tree, &plan))
            }
            "check" => check(&self.tree).map(|()| "sound".into()),
            "show" => Ok(Drawing(&self.tree).to_string()),
            "admit" => self.admit(plan()?),
            _ => Err(format!("unknown command {command:?}")),
        }
    }

    fn admit(&mut self, plan: Plan) -> Result<String, String> {
        legal(&self.tree, &plan).map_err(|e| e.to_string())?;
        let inputs = spans(&self.tree, &plan.take);
        let ticket = Ticket(self.pieces.len() as u64 + 1);
        let waits = waits(&inputs, plan.out, &self.pieces);
        let mut shown = format!("{ticket} waits for");
        waits.iter().for_each(|piece| shown += &format!(" {}", piece.ticket));
        if waits.is_empty() {
            shown += " none";
        }
        for input in &inputs {
            for run in self.tree.levels.iter_mut().flat_map(|level| &mut level.runs) {
                run.files.retain(|f| f.table != input.table);
            }
        }
        let range =
            inputs.iter().map(|f| f.range.clone()).reduce(|a, b| a.hull(&b)).unwrap_or(KeyRange::all());
        let min = inputs.iter().map(|f| f.min_seq).min().unwrap_or(1);
        let max = inputs.iter().map(|f| f.max_seq).max().unwrap_or(1);
        let mut coming = plain_file(TableId(100 + ticket.0), range.clone(), min, max);
        coming.state = FileState::Coming(ticket);
        let run = RunView { id: RunId(100 + ticket.0), tag: RunTag::default(), files: vec![coming] };
        self.tree.levels[usize::from(plan.out)].runs.push(run);
        self.pieces.push(PieceView { id: PieceId { ticket, index: 0 }, range, inputs, out: plan.out, waits });
        Ok(shown)
    }
}

fn run(case: &str) -> String {
    let mut desk = Desk::default();
    let answers = case.lines().map(|line| desk.run(line).unwrap_or_else(|e| e));
    answers.filter(|answer| !answer.is_empty()).map(|answer| answer + "\n").collect()
}

text_test!(legality_as_text, "testdata/legal.txt", run);

/// Parsing and printing a drawing returns the same text.
#[test]
fn drawings_round_trip() {
    for drawing in [
        "L1: [a..m #30-41] [f..z #35-60]  L2: [a..z #1-29]",
        "L0: [a..c #5] [c..d #6 64M] | [d..f #7 100B t9] [a..b #8 .3]  L6: [..m #1 ~2] [m.. #1-4 1536K ^7]",
        "",
    ] {
        let tree = parse_tree(drawing).expect("it can be read");
        assert_eq!(Drawing(&tree).to_string(), drawing);
    }
    for wrong in ["[a..b #1]", "L9: [a..b #1]", "L1: [a..b #x]", "L1: [a..b", "L1: [ab #1]", "what"] {
        assert!(parse_tree(wrong).is_err(), "{wrong}");
    }
}
