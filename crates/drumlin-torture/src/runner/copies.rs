//! Copies of a store that a workload makes, compared with the oracle: checkpoints, and repairs of a killed store.

use super::{Runner, STORE, builder, contents, failed, open_at};
use crate::failure::{Failure, Verdict};
use drumlin_env::ImageMode;
use drumlin_env::sync::Arc;
use std::path::{Path, PathBuf};

impl Runner {
    /// Repairs the disk that the death of the process would leave now. All that was promised must be there, and
    /// nothing may be lost.
    pub(super) fn repair(&mut self) -> Result<(), Failure> {
        const TARGET: &str = "/repaired";
        let left = self.mem.snapshot().image(ImageMode::All, self.setup.seed ^ self.tally.operations);
        let report = drumlin::repair_in(&left.env(), STORE, TARGET, |_| {}).map_err(failed("repair"))?;
        if !report.findings.is_empty() {
            return Err(
                Verdict::Wrong.of(format!("the repair of a sound store reports {:?}", report.findings))
            );
        }
        let db =
            open_at(&left, &self.setup, Path::new(TARGET)).map_err(failed("opening a repaired store"))?;
        let found = contents(&db).map_err(failed("reading a repaired store"))?;
        let mut promise = self.promise.lock().clone();
        promise.check_names(&db.keyspaces())?;
        let seen = (promise.issued, left.env().clock().unix_micros());
        self.oracle.find_cut(&found, &promise, false, seen)?;
        self.tally.repairs += 1;
        db.close().map_err(failed("closing a repaired store"))
    }

    pub(super) fn checkpoint(&mut self) -> Result<(), Failure> {
        // Avoid the names left over from earlier in this world's history.
        let taken = self.mem.files();
        let free = |number: &u32| {
            let path = PathBuf::from(format!("/checkpoint-{number}"));
            !taken.iter().any(|file| file.starts_with(&path))
        };
        self.checkpoints = (self.checkpoints + 1..).find(free).unwrap_or(u32::MAX);
        let path = PathBuf::from(format!("/checkpoint-{}", self.checkpoints));
        self.db().checkpoint(&path).map_err(failed("checkpoint"))?;
        let seq = self.db().visible_seq();
        for name in self.keyspaces.keys() {
            self.promise.lock().flushed.insert(name.clone(), seq);
        }
        let copy = builder(&self.mem, &self.setup, &path, &Arc::default()).open();
        let copy = copy.map_err(failed("opening a checkpoint"))?;
        let found = contents(&copy).map_err(failed("reading a checkpoint"))?;
        if !found.keys().eq(self.keyspaces.keys()) || copy.keyspaces() != self.db().keyspaces() {
            return Err(Verdict::Wrong.of("a checkpoint has different keyspaces"));
        }
        for (name, content) in found {
            if self.oracle.map(&name).map(|map| map.content(seq, self.now())) != Some(content) {
                return Err(Verdict::Wrong.of(format!("keyspace {name} of a checkpoint differs")));
            }
        }
        self.tally.checkpoints += 1;
        copy.close().map_err(failed("closing a checkpoint"))
    }
}
