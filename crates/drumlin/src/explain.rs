//! Telling about decisions: the log over all lives of the store, and making logged decisions again.

use crate::decisions::{DecisionRecord, RECORDS_KEPT, ReplayReport};
use crate::event::Event;
use crate::metrics::Counters;
use crate::store::Store;
use drumlin_format::decisions::{Answer, Question};

impl Store {
    /// Appends what was decided lately to the decision log; whether there was anything. A failure is told and has
    /// no other effect.
    pub(crate) fn write_decisions(&self) -> bool {
        let queue = self.control.lock().decisions.take_queue();
        if let Err(error) = self.decisions.append(&self.env, || self.fresh_number(), &queue) {
            Counters::add(&self.metrics.background_errors, 1);
            self.tell(Event::BackgroundError { job: "decisions", error });
        }
        !queue.is_empty()
    }

    /// The latest decisions, oldest first, those of earlier lives of the store included.
    pub(crate) fn explain(&self) -> Vec<DecisionRecord> {
        let mut records: Vec<DecisionRecord> =
            self.decisions.earlier(&self.env).into_iter().map(DecisionRecord::from).collect();
        records.extend(self.control.lock().decisions.records());
        records.drain(..records.len().saturating_sub(RECORDS_KEPT));
        records
    }

    /// Makes every logged decision again. A policy is pure: it must answer as it did.
    pub(crate) fn replay_decisions(&self) -> ReplayReport {
        self.write_decisions();
        let mut report = ReplayReport::default();
        for entry in self.decisions.all(&self.env) {
            if entry.question.is_empty() {
                continue;
            }
            report.decisions += 1;
            let same = Question::decode(&entry.question).is_ok_and(|question| is_repeated(&question));
            if !same {
                let what = format!("{}: {} at {}", entry.keyspace, entry.reason, entry.micros);
                report.differing.push(what);
            }
        }
        report
    }
}

/// Whether the policy of `question`, in its state of then, answers as it did.
fn is_repeated(question: &Question) -> bool {
    let Ok(mut policy) = drumlin_policy::by_name(&question.policy) else { return false };
    let restored = question.state.is_empty() || policy.restore(&question.state).is_ok();
    restored && Answer::from(&policy.decide(&question.picture.input())) == question.answer
}
