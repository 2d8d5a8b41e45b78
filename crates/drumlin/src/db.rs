//! The store as users hold it: opening, keyspaces, batches, snapshots, care.

use crate::batch::Batch;
use crate::decisions::{DecisionRecord, ReplayReport};
use crate::error::Result;
use crate::event::EventListener;
use crate::keyspace::{Keyspace, Snapshot};
use crate::merge_operator::MergeOperator;
use crate::metrics::Metrics;
use crate::options::Durability;
use crate::recovery::open::{OpenRequest, open};
use crate::shape::KeyspaceShape;
use crate::store::{Components, Store};
use crate::verify::VerifyReport;
use drumlin_env::Env;
use drumlin_env::sync::Arc;
use drumlin_types::{KeyRange, Seq};
use std::ops::Deref;
use std::path::{Path, PathBuf};

/// The store behind all handles; the last one closes it.
pub(crate) struct OpenStore {
    store: Arc<Store>,
}

impl Deref for OpenStore {
    type Target = Arc<Store>;
    fn deref(&self) -> &Arc<Store> {
        &self.store
    }
}

impl Drop for OpenStore {
    fn drop(&mut self) {
        // An error here has nobody to go to: `Db::close` reports it to those who ask. Nothing that was
        // acknowledged depends on it.
        let _ = self.store.close();
    }
}

/// An open store. Cheap to clone; the store is closed when the last handle to it is dropped.
#[derive(Clone)]
pub struct Db {
    store: Arc<OpenStore>,
}

/// Options and components for opening a store.
#[derive(Clone)]
pub struct Builder {
    env: Env,
    path: PathBuf,
    create: bool,
    read_only: bool,
    options: Vec<(String, String)>,
    components: Components,
}

impl Builder {
    /// Sets an option by name; see `docs/options.md` for names, units and bounds. Options are kept in
    /// the store: the next open has them too.
    ///
    /// # Errors
    /// `InvalidOption` naming option, value and bounds.
    pub fn set(mut self, name: &str, value: &str) -> Result<Builder> {
        let mut check = crate::options::Options::default();
        check.set(name, value)?;
        self.options.push((name.to_owned(), value.to_owned()));
        Ok(self)
    }

    /// Whether a missing store is made; the default is yes.
    pub fn create_if_missing(mut self, create: bool) -> Builder {
        self.create = create;
        self
    }

    /// Whether the store is opened for reading alone; the default is no.
    ///
    /// Nothing is written then, not even a lock file, so a store on a full disk or in a directory without write
    /// permission can be read: what the log holds stays in memory, and every call that would change something gives
    /// `ReadOnly`. Options that are set hold for this handle only. Stores opened read-only share the directory; while
    /// one is open nobody can open it for writing, and the other way round: both give `Locked`. A copy of a store
    /// without its lock file is read without a lock, so it must be left alone meanwhile.
    pub fn read_only(mut self, read_only: bool) -> Builder {
        self.read_only = read_only;
        self
    }

    /// The environment to work in; the default is the operating system.
    pub fn env(mut self, env: Env) -> Builder {
        self.env = env;
        self
    }

    /// Who hears events.
    pub fn listener(mut self, listener: Arc<dyn EventListener>) -> Builder {
        self.components.listener = Some(listener);
        self
    }

    /// The merge operator of the keyspace `keyspace`. It must be given at every open.
    pub fn merge_operator(mut self, keyspace: &str, operator: Arc<dyn MergeOperator>) -> Builder {
        self.components.operators.insert(keyspace.to_owned(), operator);
        self
    }

    /// Opens the store.
    ///
    /// # Errors
    /// `NotFound` (always, when a missing store is opened read-only), `NotAStore`, `NewerFormat`, `Locked`, `Corruption`, `InvalidOption`, `Io`, `NoSpace`.
    pub fn open(self) -> Result<Db> {
        let Builder { env, path, create, read_only, options, components } = self;
        let create = create && !read_only;
        let store = open(OpenRequest { env, dir: path, create, read_only, options, components })?;
        Ok(Db { store: Arc::new(OpenStore { store }) })
    }
}

impl Db {
    /// Opens the store in directory `path`, making it when there is none, with the options it was left
    /// with.
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Db::builder(path).open()
    }

    /// A builder for the store in directory `path`.
    pub fn builder(path: impl AsRef<Path>) -> Builder {
        Builder {
            env: Env::os(),
            path: path.as_ref().to_owned(),
            create: true,
            read_only: false,
            options: Vec::new(),
            components: Components::default(),
        }
    }

    /// The keyspace called `name`, made when there is none.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        self.keyspace_with(name, &[])
    }

    /// [`Db::keyspace`] with options set, by name and value.
    pub fn keyspace_with(&self, name: &str, options: &[(&str, &str)]) -> Result<Keyspace> {
        let wanted: Vec<(String, String)> =
            options.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let state = self.store.keyspace(name, &wanted)?;
        Ok(Keyspace { store: self.store.clone(), state })
    }

    /// Names of all keyspaces, in order of creation.
    pub fn keyspaces(&self) -> Vec<String> {
        self.store.keyspaces().iter().map(|k| k.name.to_string()).collect()
    }

    /// Drops a keyspace with all that it holds. Durable when it returns. Handles to it give errors.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.store.drop_keyspace(name)
    }

    /// Writes `batch` as one commit with the store's default durability. Returns the commit sequence.
    pub fn write(&self, batch: Batch) -> Result<Seq> {
        self.store.write(&batch, self.store.durability())
    }

    /// [`Db::write`] with the given durability.
    pub fn write_with(&self, batch: Batch, durability: Durability) -> Result<Seq> {
        self.store.write(&batch, durability)
    }

    /// A picture of the whole store as of now.
    pub fn snapshot(&self) -> Snapshot {
        let guard = self.store.snapshots.register(|| self.store.publisher.visible());
        Snapshot { store: self.store.clone(), guard }
    }

    /// Sequence number of the last visible commit.
    pub fn visible_seq(&self) -> Seq {
        self.store.publisher.visible()
    }

    /// Last sequence number that would survive power loss, counting logged writes.
    pub fn durable_seq(&self) -> Seq {
        self.store.durable_seq()
    }

    /// Last sequence number that recovery found when the store was opened.
    pub fn recovered_seq(&self) -> Seq {
        self.store.recovered_seq
    }

    /// Makes every commit so far durable: raises [`Db::durable_seq`] to [`Db::visible_seq`].
    pub fn sync(&self) -> Result<()> {
        self.store.sync()
    }

    /// Writes what is in memory to tables and waits until it is there.
    pub fn flush(&self) -> Result<()> {
        self.store.flush(None)
    }

    /// Merges every keyspace into one run and waits for it. Fails as [`Keyspace::compact`] does, at the first keyspace
    /// that cannot be merged as a whole.
    pub fn compact(&self) -> Result<()> {
        for keyspace in self.store.keyspaces().iter() {
            self.store.compact(keyspace, KeyRange::all())?;
        }
        Ok(())
    }

    /// Waits until nothing is left to flush, merge or remove.
    pub fn wait_idle(&self) -> Result<()> {
        self.store.wait_idle()
    }

    /// Makes a copy of the store, as of one moment, in the new directory `path`. Tables are linked, not
    /// copied, so both must be on one file system.
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        self.store.checkpoint(path.as_ref())
    }

    /// Reads everything and checks it: every checksum, every order, every count, every reference.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.store.verify()
    }

    /// Counters and gauges.
    pub fn metrics(&self) -> Metrics {
        self.store.read_metrics()
    }

    /// The shape of every keyspace's tree.
    pub fn tree(&self) -> Vec<KeyspaceShape> {
        self.store.shape()
    }

    /// The latest decisions and their reasons, oldest first. They are kept over restarts, up to a bound.
    pub fn explain(&self) -> Vec<DecisionRecord> {
        self.store.explain()
    }

    /// Puts the logged questions to their policies again and compares the answers.
    pub fn replay_decisions(&self) -> ReplayReport {
        self.store.replay_decisions()
    }

    /// Changes an option of the store, at once and for good.
    ///
    /// # Errors
    /// `InvalidOption` naming option, value and bounds, or when only the next open can take it.
    pub fn set_option(&self, name: &str, value: &str) -> Result<()> {
        self.store.set_option(name, value)
    }

    /// Every option in force, by name.
    pub fn options(&self) -> Vec<(&'static str, String)> {
        self.store.options.load().pairs()
    }

    /// Runs background steps in a stepped environment, for tests; gives whether any could run.
    pub fn step_background(&self, steps: usize) -> Result<bool> {
        for _ in 0..steps {
            if !self.store.background.step_any()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Closes the store and reports what goes wrong in that. Other handles give errors from then on.
    pub fn close(self) -> Result<()> {
        self.store.close()
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Db({})", self.store.dir.display())
    }
}
