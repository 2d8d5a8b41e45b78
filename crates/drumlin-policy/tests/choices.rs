//! Decisions of each preset on drawn trees, as text.
//!
//! `tree` draws; `ticket N PLAN` adds a plan under way; `slots N` and `memtable BYTES` set limits (initially 1 and
//! 1M). `decide POLICY` prints the plans in order with their reasons, and the write rate limit.

#![expect(clippy::disallowed_methods, reason = "tests read and damage files on purpose")]

use drumlin_policy::by_name;
use drumlin_types::contract::draw::{Drawing, parse_plan, parse_tree, show_plan};
use drumlin_types::contract::{CostView, LimitView, LoadView, Pace, PolicyInput, TicketView, TreeView};
use drumlin_types::{Ticket, text_test};

struct Desk {
    tree: TreeView,
    tickets: Vec<TicketView>,
    limits: LimitView,
}

impl Desk {
    fn run(&mut self, line: &str) -> Result<String, String> {
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        match command {
            "tree" => self.tree = parse_tree(rest)?,
            "slots" => self.limits.slots = rest.parse().map_err(|_| "slots?")?,
            "memtable" => {
                let drawn = parse_tree(&format!("L0: [a..b {rest}]"))?;
                self.limits.memtable_bytes = drawn.bytes();
            }
            "ticket" => {
                let (number, plan) = rest.split_once(' ').ok_or("ticket N PLAN")?;
                let ticket = Ticket(number.parse().map_err(|_| "ticket?")?);
                let plan = parse_plan(&self.tree, plan)?;
                self.tickets.push(TicketView {
                    ticket,
                    plan,
                    pieces: 1,
                    pieces_done: 0,
                    bytes: 0,
                    bytes_done: 0,
                });
            }
            "decide" => return self.decide(rest),
            _ => return Err(format!("unknown command {command:?}")),
        }
        Ok(String::new())
    }

    fn decide(&self, name: &str) -> Result<String, String> {
        let mut policy = by_name(name).map_err(|e| e.to_string())?;
        let decision = policy.decide(&PolicyInput {
            tree: &self.tree,
            tickets: &self.tickets,
            load: &LoadView::default(),
            costs: &CostView { compaction_bytes_per_s: (1 << 20) as f64, ..CostView::default() },
            limits: &self.limits,
            wanted: &[],
            wanted_seeks: &[],
            now: 0,
            seed: 1,
            frozen: false,
        });
        let mut shown = String::new();
        let projected = self.tree.projected();
        for plan in &decision.plans {
            shown += &format!("{}\n  {}\n", show_plan(&projected, plan), plan.reason);
        }
        if decision.plans.is_empty() {
            shown += "nothing\n";
        }
        let Pace { scope, slow, stop, drain, hard_stop, .. } = decision.pace.ok_or("no pace")?;
        let hard = if hard_stop { ", hard" } else { "" };
        shown +=
            &format!("  pace {scope:?} {slow} to {stop}{hard}, drain {:.2} MiB/s", drain / (1 << 20) as f64);
        Ok(shown)
    }
}

fn run(case: &str) -> String {
    let limits = LimitView { memtable_bytes: 1 << 20, slots: 1, ..LimitView::default() };
    let mut desk = Desk { tree: TreeView::default(), tickets: Vec::new(), limits };
    let answers = case.lines().map(|line| desk.run(line).unwrap_or_else(|e| e));
    answers.filter(|answer| !answer.is_empty()).map(|answer| answer + "\n").collect()
}

text_test!(choices_as_text, "testdata/choices.txt", run);

#[test]
fn drawn_trees_are_what_they_seem() {
    let drawing = "L0: [a..m #1-2 1M] [a..m #3-4 1M ~7]";
    assert_eq!(Drawing(&parse_tree(drawing).unwrap()).to_string(), drawing);
}
