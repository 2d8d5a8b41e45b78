//! Handle of an open store, and the builder that opens it: keyspaces, batches, snapshots and maintenance.

use crate::api::batch::Batch;
use crate::api::keyspace::Keyspace;
use crate::api::open_store::OpenStore;
use crate::api::snapshot::Snapshot;
use crate::base::decisions::{DecisionRecord, ReplayReport};
use crate::base::error::Result;
use crate::base::event::EventListener;
use crate::base::merge_operator::MergeOperator;
use crate::base::metrics::Metrics;
use crate::base::snapshots::ReadPoint;
use crate::ops::open::open;
use crate::ops::shape::KeyspaceShape;
use crate::ops::verify::VerifyReport;
use crate::options::{Durability, KeyspaceSettings, Options};
use crate::recovery::open::OpenRequest;
use crate::store::Components;
use drumlin_env::Env;
use drumlin_env::sync::Arc;
use drumlin_types::{KeyRange, Seq};
use std::borrow::Borrow;
use std::path::{Path, PathBuf};

/// Handle of an open store. It is cheap to clone, and many threads can use it at once.
///
/// [`Db::open`] opens a store with its stored options, and [`Db::builder`] opens it with other ones. Programs read and
/// write through the [`Keyspace`] handles that [`Db::keyspace`] returns.
///
/// # Close and drop
/// [`Db::close`] closes the store and returns errors. Without it, the store is closed when the last `Db`, [`Keyspace`]
/// and [`Snapshot`] of it is dropped. Iterators, cursors and batches do not keep the store open.
///
/// Such a drop does the same as a close, and ignores its errors. It syncs the log, so writes with
/// `Durability::Buffered` survive power loss afterwards. It may block for these syncs, for the current step of each
/// background thread, and up to 60 s for a stuck write. Close and drop lose unflushed writes with `Durability::None`.
///
/// # Threads
/// A store that is open for writing has background threads: one for flushes, one that prepares log segments and
/// memtables, one for maintenance, and one for each compaction slot. The store begins with one slot less than there are
/// cores, at least one and at most 4, and fewer with a small `memory_budget`. It then measures whether more of them
/// help, and uses up to 32. The option `compaction_slots` fixes the number. A store that is opened read-only has no
/// threads.
///
/// ```
/// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
/// let db = drumlin::Db::open(dir.path())?;
/// let users = db.keyspace("users")?;
/// let writer = {
///     let users = users.clone();
///     std::thread::spawn(move || users.put("ada", "1815"))
/// };
/// writer.join().expect("no panic")?;
/// assert!(users.contains_key("ada")?);
/// db.close()?;
/// # Ok::<(), drumlin::Error>(())
/// ```
#[derive(Clone)]
pub struct Db {
    store: Arc<OpenStore>,
}

/// Builder that opens a store with options, merge operators and an event listener. [`Db::builder`] creates it.
///
/// ```
/// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
/// let db = drumlin::Db::builder(dir.path())
///     .set("memory_budget", "64MiB")?
///     .set("durability", "sync")?
///     .open()?;
/// # drop(db);
/// # Ok::<(), drumlin::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "nothing is opened before `open`"]
pub struct Builder {
    env: Env,
    path: PathBuf,
    create: bool,
    read_only: bool,
    unfinished: bool,
    options: Vec<(String, String)>,
    components: Components,
    clock: u64,
}

impl Builder {
    /// Sets the store option `name`. If it is set twice, the last value holds. Sizes take a unit: `64MiB`, `64M` and
    /// `67108864` are the same, and `64MB` is 64 million bytes.
    ///
    /// [`Options`] lists names, defaults and bounds. The store keeps its options, so the next open uses them too.
    /// Options of keyspaces are set with [`Db::keyspace_with`].
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// let db = drumlin::Db::builder(dir.path()).set("disk_budget", "10GiB")?.open()?;
    /// db.close()?;
    /// let db = drumlin::Db::open(dir.path())?;
    /// assert!(db.options().contains(&("disk_budget", "10GiB".to_owned())));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidOption`: names the option, the value and the bounds. Whether options contradict each other is checked by
    /// [`Builder::open`].
    pub fn set(mut self, name: &str, value: &str) -> Result<Builder> {
        let mut check = Options::default();
        check.set(name, value)?;
        self.options.push((name.to_owned(), value.to_owned()));
        Ok(self)
    }

    /// Sets every option of `options` that differs from its default. Other options keep the value that the store has
    /// stored; [`set`](Builder::set) resets one. (A [`KeyspaceOptions`](crate::KeyspaceOptions) for
    /// [`Db::keyspace_with`] sets every option of the keyspace, those with default values too.)
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// let mut options = drumlin::Options::default();
    /// options.memory_budget = 64 << 20;
    /// options.durability = drumlin::Durability::Sync;
    /// let db = drumlin::Db::builder(dir.path()).options(&options)?.open()?;
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidOption` for the first value out of bounds.
    pub fn options(mut self, options: &Options) -> Result<Builder> {
        options.validate()?;
        let defaults = Options::default().pairs();
        let changed = options.pairs().into_iter().filter(|pair| !defaults.contains(pair));
        self.options.extend(changed.map(|(name, value)| (name.to_owned(), value)));
        Ok(self)
    }

    /// Sets `memory_budget` in bytes: the memory of memtables, of the block cache (with filters and indexes), and of
    /// the buffers of flushes and compactions. The default is 512 MiB, the bounds are 8 MiB and 1024 TiB.
    /// [`Options::memory_budget`] lists what it does not include.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// let db = drumlin::Db::builder(dir.path()).memory_budget(64 << 20)?.open()?;
    /// # assert!(db.options().contains(&("memory_budget", "64MiB".to_owned())));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidOption` for a value out of bounds.
    pub fn memory_budget(self, bytes: u64) -> Result<Builder> {
        self.set("memory_budget", &bytes.to_string())
    }

    /// Sets whether [`open`](Builder::open) creates a missing store. The default is `true`. With `false`, open fails
    /// with `NotFound` and creates nothing.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// let opened = drumlin::Db::builder(dir.path()).create_if_missing(false).open();
    /// assert_eq!(opened.expect_err("no store").kind(), drumlin::ErrorKind::NotFound);
    /// ```
    pub fn create_if_missing(mut self, create: bool) -> Builder {
        self.create = create;
        self
    }

    /// Sets whether the store is opened read-only. The default is `false`.
    ///
    /// A read-only open writes nothing, not even a lock file. So it can read a store on a full disk, or in a directory
    /// without write permission. It replays the log into memory, where the writes stay: the log usually has less than
    /// three quarters of the store's `memory_budget`, or four segments if that is more. Every call that would change
    /// the store returns `ReadOnly`, and so does [`Db::checkpoint`]. Options set by the builder apply to this handle
    /// only.
    ///
    /// Several read-only opens can share a directory. While one exists, an open for writing fails with `Locked`, and
    /// the other way round. So no process can read a store while another one writes it: read a
    /// [checkpoint](Db::checkpoint) instead. In a directory without a `LOCK` file, a read-only open takes no lock: do
    /// not change such a copy while it is open.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # drumlin::Db::open(dir.path())?.keyspace("users")?.put("ada", "1815")?;
    /// let db = drumlin::Db::builder(dir.path()).read_only(true).open()?;
    /// let users = db.open_keyspace("users")?;
    /// assert!(users.contains_key("ada")?);
    /// let refused = users.put("bob", "1950").expect_err("nothing can be changed");
    /// assert_eq!(refused.kind(), drumlin::ErrorKind::ReadOnly);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn read_only(mut self, read_only: bool) -> Builder {
        self.read_only = read_only;
        self
    }

    /// Records `operator` as the name of the merge operator of a new keyspace, without its code. Repair uses it.
    pub(crate) fn operator_name(mut self, keyspace: &str, operator: &str) -> Builder {
        self.components.operator_names.insert(keyspace.to_owned(), operator.to_owned());
        self
    }

    /// Sets the earliest time of the store's clock, in microseconds since the Unix epoch. Repair uses it.
    pub(crate) fn clock(mut self, micros: u64) -> Builder {
        self.clock = micros;
        self
    }

    /// Permits opening a store that a repair is still writing. Repair uses it.
    pub(crate) fn unfinished(mut self) -> Builder {
        self.unfinished = true;
        self
    }

    /// Sets the environment in which the store works. The default is the operating system. Needs the
    /// feature `testing`.
    ///
    /// Tests of programs can use [`MemEnv`](crate::env::MemEnv), a simulated disk and clock in memory. It starts no
    /// threads: background work runs inside the calls, in an order that follows from a seed.
    ///
    /// ```
    /// use drumlin::env::{ImageMode, MemEnv};
    /// let mem = MemEnv::new(1);
    /// let db = drumlin::Db::builder("/store").env(mem.env()).open()?;
    /// db.keyspace("users")?.put_with("ada", "1815", drumlin::Durability::Sync)?;
    /// let after_power_loss = mem.snapshot().image(ImageMode::None, 1);
    /// let db = drumlin::Db::builder("/store").env(after_power_loss.env()).open()?;
    /// assert!(db.keyspace("users")?.contains_key("ada")?);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    #[cfg(feature = "testing")]
    pub fn env(self, env: Env) -> Builder {
        self.in_env(env)
    }

    pub(crate) fn in_env(mut self, env: Env) -> Builder {
        self.env = env;
        self
    }

    /// Sets the listener that receives the store's [events](crate::Event). By default there is none.
    ///
    /// It is called on the thread where the event occurs, also on background threads, and the store may hold its locks.
    /// So as long as the call takes, writes, flushes and compactions may wait for it. It must not call the store, or
    /// wait for a thread that does. See [`EventListener`] for an example, and for what a panic does.
    pub fn listener(mut self, listener: Arc<dyn EventListener>) -> Builder {
        self.components.listener = Some(listener);
        self
    }

    /// Sets the merge operator of the keyspace named `keyspace`. If the keyspace does not exist yet, it gets the
    /// operator when it is created. A keyspace that has none yet gets it, and its name is stored from then on. See
    /// [`Keyspace::merge`] for an example.
    ///
    /// The operator is code, so pass it at every open. The store keeps only its name with the keyspace, and
    /// [`open`](Builder::open) refuses an operator of another name. A store can be opened without the operator. Then
    /// merges into the keyspace and reads of a key with operands fail with `MergeOperatorMissing`, and the error
    /// contains the operator's name; everything else works. If an existing store has no keyspace of that name, open
    /// reports [`Event::OperatorUnused`](crate::Event::OperatorUnused).
    pub fn merge_operator(mut self, keyspace: &str, operator: Arc<dyn MergeOperator>) -> Builder {
        self.components.operators.insert(keyspace.to_owned(), operator);
        self
    }

    /// Opens the store, and creates it if it does not exist.
    ///
    /// Open reads the manifest, and replays the log records that are not yet in tables. If the store was not closed, it
    /// also flushes them to tables before it returns. It checks that every table exists and has its length, but does
    /// not read the data of tables. So the time grows with the length of the log (usually less than three quarters of
    /// `memory_budget`) and with the number of tables, but not with their size.
    ///
    /// The log may end with an incomplete record. Such a record is the trace of an interrupted write; it is discarded.
    /// [`Db::recovered_seq`] and [`Event::Recovered`](crate::Event::Recovered) tell what was recovered.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// let sum = std::sync::Arc::new(drumlin::AddI64::Text);
    /// let db = drumlin::Db::builder(dir.path()).memory_budget(64 << 20)?.merge_operator("hits", sum).open()?;
    /// db.keyspace("hits")?.merge("home", "1")?;
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `NotFound`: there is no store, and it may not be created. Read-only opens never create one.
    /// - `NotAStore`: the directory holds other files, or the path is that of a file. `NewerFormat`: a newer version of
    ///   Drumlin wrote the store.
    /// - `Locked`: the store is already open, in this or another process.
    /// - `Corruption`: the manifest or the log is damaged, or a table is missing or truncated. Try
    ///   [`repair`](crate::repair).
    /// - `InvalidOption`: options contradict each other, or a merge operator has another name than the stored one.
    /// - `InvalidArgument`: the path is empty.
    /// - `Io`, `NoSpace`, `TooManyFiles`: a system call failed. `Poisoned`: a sync failed while the replayed log was
    ///   flushed; the next open tries again.
    pub fn open(self) -> Result<Db> {
        let Builder { env, path, create, read_only, unfinished, options, components, clock } = self;
        let create = create && !read_only;
        let request =
            OpenRequest { env, dir: path, create, read_only, unfinished, options, components, clock };
        let store = open(request)?;
        Ok(Db { store: Arc::new(OpenStore::new(store)) })
    }
}

impl Db {
    /// Opens the store in the directory `path` with its stored options. If there is no store, the call creates one with
    /// default options, and missing directories of the path too.
    ///
    /// Only one `Db` and its clones can have a store open for writing: another open fails with `Locked`, in this
    /// process and in others. See [`Builder::open`] for what an open costs.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// let db = drumlin::Db::open(dir.path())?;
    /// db.keyspace("users")?.put("ada", "1815")?;
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Db::builder(path).open()
    }

    /// Returns a builder for the store in the directory `path`. Nothing is read or written until [`Builder::open`]. See
    /// [`Builder`] for an example.
    pub fn builder(path: impl AsRef<Path>) -> Builder {
        Builder {
            env: Env::os(),
            path: path.as_ref().to_owned(),
            create: true,
            read_only: false,
            unfinished: false,
            options: Vec::new(),
            components: Components::default(),
            clock: 0,
        }
    }

    /// Returns a handle of the keyspace called `name`. Creates the keyspace with default options if it does not exist.
    ///
    /// A name has 1 to 255 bytes of UTF-8, with any characters. Creating a keyspace costs one fsync of the manifest,
    /// and is durable when the call returns. Returning an existing one does no I/O. Each keyspace has a memtable and a
    /// tree of its own. All keyspaces share one log and the memory budget.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// let users = db.keyspace("users")?;
    /// assert_eq!(users.name(), "users");
    /// assert_eq!(db.keyspaces(), ["users"]);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `InvalidArgument`: the keyspace does not exist, and its name is empty or too long, or no keyspace ids are
    ///   left.
    /// - `InvalidOption`: the keyspace does not exist, and the name of its merge operator is empty or too long.
    /// - `NoSpace`, `TooManyFiles`: the keyspace does not exist and cannot be created now. Nothing changes.
    /// - `ReadOnly`, `Poisoned`: the keyspace does not exist and cannot be created.
    /// - `Io`: writing the manifest failed. Whether the keyspace exists is unknown until the next open; writes fail
    ///   from now on.
    /// - `Closed`: the store was closed.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        let state = self.store.keyspace(name, &[])?;
        Ok(Keyspace { store: self.store.clone(), state })
    }

    /// Returns a handle of the keyspace called `name` after setting `options`: pairs of a name and a value, or a
    /// [`KeyspaceOptions`](crate::KeyspaceOptions), which sets every option. Creates the keyspace if it does not exist.
    ///
    /// All options are set or none. On an existing keyspace they take effect at once, like
    /// [`Keyspace::set_option`]; options that are not named keep their values. That costs one fsync even if the values
    /// are the same, and overrides values that were set since.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// let options = [("compression", "zstd"), ("ttl_seconds", "86400")];
    /// let sessions = db.keyspace_with("sessions", &options)?;
    /// sessions.put("42", "ada")?;
    ///
    /// let mut options = drumlin::KeyspaceOptions::default();
    /// options.ttl_seconds = 3600;
    /// let tokens = db.keyspace_with("tokens", &options)?;
    /// tokens.put("42", "secret")?;
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::keyspace`], and `InvalidOption`, which names the option, the value and the bounds. If the
    /// keyspace exists and options are given, those of [`Keyspace::set_option`].
    pub fn keyspace_with(&self, name: &str, options: &(impl KeyspaceSettings + ?Sized)) -> Result<Keyspace> {
        let state = self.store.keyspace(name, &options.settings())?;
        Ok(Keyspace { store: self.store.clone(), state })
    }

    /// Returns a handle of the keyspace called `name`, which must exist. It does no I/O, but waits for the end of a
    /// drop of that keyspace.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// let error = db.open_keyspace("typo").expect_err("nothing is created");
    /// assert_eq!(error.kind(), drumlin::ErrorKind::NotFound);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `NotFound`: there is no such keyspace.
    /// - `Closed`: the store was closed.
    pub fn open_keyspace(&self, name: &str) -> Result<Keyspace> {
        let state = self.store.open_keyspace(name)?;
        Ok(Keyspace { store: self.store.clone(), state })
    }

    /// Creates the keyspace `name`, which must not exist, with `options`: pairs of a name and a value, or a
    /// [`KeyspaceOptions`](crate::KeyspaceOptions).
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// let logs = db.create_keyspace("logs", &[("compression", "zstd")])?;
    /// logs.put("1", "started")?;
    /// assert!(db.create_keyspace("logs", &[]).is_err());
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::keyspace_with`], and `AlreadyExists` if there is a keyspace of that name.
    pub fn create_keyspace(
        &self,
        name: &str,
        options: &(impl KeyspaceSettings + ?Sized),
    ) -> Result<Keyspace> {
        let state = self.store.create_keyspace(name, &options.settings())?;
        Ok(Keyspace { store: self.store.clone(), state })
    }

    /// Returns the names of all keyspaces, in order of creation. See [`Db::keyspace`] for an example.
    pub fn keyspaces(&self) -> Vec<String> {
        self.store.keyspaces().iter().map(|k| k.name.to_string()).collect()
    }

    /// Renames the keyspace `from` to `to`. The rename is durable when the call returns.
    ///
    /// It first makes all earlier logged writes durable, and then writes one manifest edit. So a program can fill a new
    /// keyspace and give it the name of an old one, and a power loss leaves no name without its data. Writes with
    /// `Durability::None` need a [`flush`](Keyspace::flush) first. Handles, iterators and snapshots stay valid.
    /// Metrics, events and decisions that were recorded earlier keep the old name. The call waits for a checkpoint that
    /// is being made.
    ///
    /// The keyspace keeps its merge operator, or none. A program that rebuilds a keyspace with an operator passes the
    /// operator for both names when it opens the store.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # db.keyspace("index")?;
    /// let rebuilt = db.keyspace("index.new")?;
    /// rebuilt.put("ada", "1815")?;
    /// db.drop_keyspace("index")?;
    /// db.rename_keyspace("index.new", "index")?;
    /// assert_eq!(rebuilt.name(), "index");
    /// assert_eq!(db.keyspaces(), ["index"]);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `NotFound`: there is no keyspace `from`.
    /// - `AlreadyExists`: there is a keyspace `to` already. `InvalidArgument`: `to` is empty or too long.
    /// - `InvalidOption`: a merge operator was passed for `to`, and the keyspace has another one or none.
    /// - `NoSpace`, `TooManyFiles`: the keyspace keeps its name.
    /// - `ReadOnly`, `Closed`.
    /// - `Poisoned`: the store accepts no writes, or the log could not be made durable.
    /// - `Io`: writing the manifest failed. Which name the keyspace has is unknown until the next open; writes fail
    ///   from now on.
    pub fn rename_keyspace(&self, from: &str, to: &str) -> Result<()> {
        self.store.rename_keyspace(from, to)
    }

    /// Drops the keyspace `name` with all its data. The drop is durable when the call returns.
    ///
    /// It first makes all earlier logged writes durable, and then writes one manifest edit, whatever the amount of
    /// data. The call first waits for a running checkpoint. Writes during that wait succeed and are dropped with the
    /// keyspace. Then all handles return `KeyspaceDropped`. If the drop fails with another error than `Io`, they work
    /// again. The files are removed in the background once no iterator reads them. Iterators and cursors that are open
    /// keep their view. A snapshot does not: reads of the keyspace through it fail too.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// db.keyspace("users")?.put("ada", "1815")?;
    /// db.drop_keyspace("users")?;
    /// assert!(db.keyspaces().is_empty());
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `NotFound`: there is no such keyspace.
    /// - `NoSpace`: the disk has no space for the manifest edit; the keyspace stays.
    /// - `TooManyFiles`: a file could not be opened; the keyspace stays.
    /// - `Busy`: a write has been running for over 60 s; the keyspace stays.
    /// - `ReadOnly`, `Closed`.
    /// - `Poisoned`: the store accepts no writes, or the log could not be made durable.
    /// - `Io`: writing the manifest failed. Whether the keyspace exists is unknown until the next open; writes fail
    ///   from now on.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        self.store.drop_keyspace(name)
    }

    /// Writes `batch` atomically with the store's default durability, and returns the commit's sequence number: that of
    /// its last operation. An empty batch writes nothing and returns the visible sequence number.
    ///
    /// The default durability is the option `durability`, at first [`Durability::Buffered`]: the commit survives the
    /// end of the process, but not power loss.
    ///
    /// When the call returns, all reads see the commit. It appends one record to the log and inserts the operations
    /// into the memtables. It waits while compactions or flushes cannot keep up (a write stall), at most for the option
    /// `write_timeout_ms`; by default there is no limit. Many threads can write at the same time; their commits get one
    /// order.
    ///
    /// The batch can be borrowed, and then be written again.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// let mut batch = drumlin::Batch::new();
    /// batch.put(&users, "ada", "1815");
    /// batch.delete(&users, "bob");
    /// let seq = db.write(batch)?;
    /// assert_eq!(seq, db.visible_seq());
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Except for `Poisoned` and `NotDurable`, nothing was written.
    /// - `InvalidArgument`: a key over 1 MiB; a value or a batch over a quarter of the option `memory_budget`, or over
    ///   another limit of [`Batch`]; a keyspace of another store; a batch over several keyspaces with
    ///   `Durability::None`. `KeyspaceDropped`. `MergeOperatorMissing`: a merge into a keyspace without its merge
    ///   operator.
    /// - `Busy`: the write waited longer than `write_timeout_ms`.
    /// - `NoSpace`: the disk or the option `disk_budget` is full. Repeat the write once there is space. Reads still
    ///   work, and when `disk_budget` is full, so do batches that only delete.
    /// - `Poisoned`: this write or an earlier one failed in the log, or the manifest failed. Reopen the store to write
    ///   again. The commit of a write that failed in the log may exist after the reopening.
    /// - `TooManyFiles`: no log segment could be opened.
    /// - `NotDurable`: the commit is written and visible, but no file descriptor was left for its sync. Call
    ///   [`Db::sync`], and do not repeat the write.
    /// - `ReadOnly`, `Closed`.
    /// - `Io` or another kind: flushes or compactions that the write waits for have failed three times in a row, with
    ///   this error. They are still retried.
    pub fn write(&self, batch: impl Borrow<Batch>) -> Result<Seq> {
        self.store.write(&batch.borrow().operations, self.store.durability())
    }

    /// Writes `batch` like [`Db::write`], with the given durability.
    ///
    /// `Sync` costs one fsync of the log, which concurrent writers share. `Buffered` hands the record to the operating
    /// system without an fsync. `None` writes no log, and the batch may use only one keyspace.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// let mut batch = drumlin::Batch::new();
    /// batch.put(&users, "ada", "1815");
    /// let seq = db.write_with(batch, drumlin::Durability::Sync)?;
    /// assert!(db.durable_seq() >= seq);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::write`]. If the sync fails, readers may already see the commit.
    pub fn write_with(&self, batch: impl Borrow<Batch>, durability: Durability) -> Result<Seq> {
        self.store.write(&batch.borrow().operations, durability)
    }

    /// Takes a snapshot of the whole store, all keyspaces together. It sees all commits that are visible now, and none
    /// later.
    ///
    /// It does no I/O and copies nothing. While the snapshot is alive, compactions keep the versions that it sees. See
    /// [`Snapshot`] for what else that means.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// let before = db.snapshot();
    /// users.delete("ada")?;
    /// assert!(before.get(&users, "ada")?.is_some());
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn snapshot(&self) -> Snapshot {
        let store = &self.store;
        let seq = || match drumlin_types::bug!("snapshot-of-unpublished") {
            true => store.commit_lock.state.lock().next_seq - 1,
            false => store.publisher.visible(),
        };
        let guard = store.snapshots.register(|| ReadPoint { seq: seq(), micros: store.files.unix_micros() });
        Snapshot { store: self.store.clone(), guard }
    }

    /// Returns the directory of the store.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// let db = drumlin::Db::open(dir.path())?;
    /// assert_eq!(db.path(), dir.path());
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn path(&self) -> &Path {
        &self.store.files.dir
    }

    /// Returns the error that every write would return, if the store accepts no writes until it is reopened. It does
    /// not check whether the disk has space.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// db.check_writable()?;
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Poisoned`, `ReadOnly`, `Closed`.
    pub fn check_writable(&self) -> Result<()> {
        self.store.health.check_open()?;
        self.store.health.check_poison()
    }

    /// Returns the sequence number of the last visible commit. Reads see all commits up to it.
    ///
    /// Each operation of the store has a sequence number, a `u64`. The first is 1, and a commit has the number of its
    /// last operation.
    pub fn visible_seq(&self) -> Seq {
        self.store.publisher.visible()
    }

    /// Returns the last sequence number that would survive power loss: that of a logged write, with
    /// `Durability::Buffered` or `Sync`, or of a flushed one. Of the writes before it, only unflushed ones with
    /// `Durability::None` would be lost.
    ///
    /// [`Db::sync`], a write with `Durability::Sync` and flushes advance it.
    pub fn durable_seq(&self) -> Seq {
        self.store.durable_seq()
    }

    /// Returns the last sequence number that recovery found when the store was opened, in the log or in tables. Writes
    /// with `Durability::None` that were not flushed are gone, even after a close, and do not count unless a later
    /// write survived. The first operation after the open gets the next number.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// let db = drumlin::Db::open(dir.path())?;
    /// let seq = db.keyspace("users")?.put("ada", "1815")?;
    /// db.close()?;
    /// let db = drumlin::Db::open(dir.path())?;
    /// assert_eq!(db.recovered_seq(), seq);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn recovered_seq(&self) -> Seq {
        self.store.recovered_seq
    }

    /// Makes every visible commit that was logged durable, so that it survives power loss.
    ///
    /// It costs one fsync for each log segment with new records, usually one. Concurrent callers share it, and there is
    /// none if the log is durable already. Writes with `Durability::None` have no log record: [`Db::flush`] makes them
    /// durable.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// let seq = users.put("ada", "1815")?;
    /// db.sync()?;
    /// assert!(db.durable_seq() >= seq);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `Poisoned`: this sync or an earlier one failed. Writes fail from now on; reads still work.
    /// - `TooManyFiles`: nothing was synced; the call can be repeated.
    /// - `ReadOnly`, `Closed`.
    #[doc(alias = "flush_wal")]
    #[doc(alias = "persist")]
    pub fn sync(&self) -> Result<()> {
        self.store.health.check_open()?;
        self.store.sync()
    }

    /// Writes the memtables of all keyspaces to tables, and waits until the tables are durable.
    ///
    /// Afterwards all earlier writes survive power loss, including writes with `Durability::None`. It costs a few
    /// fsyncs for each keyspace that has writes in memory. Frequent flushes make small tables and more compaction work:
    /// to make logged writes durable, [`Db::sync`] is cheaper. Programs seldom need it: the store flushes memtables by
    /// itself.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put_with("ada", "1815", drumlin::Durability::None)?;
    /// db.flush()?; // the write survives power loss
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `NoSpace`: the disk or the option `disk_budget` is full. Flushes resume when there is space.
    /// - `Io`, `TooManyFiles` or another error of a flush that has failed three times. It is still retried.
    /// - `ReadOnly`, `Poisoned`, `Closed`.
    pub fn flush(&self) -> Result<()> {
        self.store.flush(None)
    }

    /// Compacts each keyspace into one run, one after the other, and waits for it. A keyspace that is dropped meanwhile
    /// is left out.
    ///
    /// [`Keyspace::compact`] describes which tables are rewritten or only moved, what that costs and when it helps.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// db.compact()?;
    /// assert_eq!(db.tree()[0].levels.iter().map(|level| level.runs.len()).sum::<usize>(), 1);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Keyspace::compact`]. The call stops at the first keyspace that fails.
    pub fn compact(&self) -> Result<()> {
        self.store.health.check_open()?;
        for keyspace in self.store.keyspaces().iter() {
            let compacted = self.store.compact(keyspace, KeyRange::all());
            if !keyspace.is_dropped() {
                compacted?;
            }
        }
        Ok(())
    }

    /// Waits for pending flushes and compactions, and for the removal of obsolete files that no reader holds, which is
    /// tried once for each file (`unlinks_failed` in [`Metrics`] counts failures).
    ///
    /// It does not flush the active memtables. Under constant writes it may never return, and only a close or an error
    /// ends it early. A read-only store is always idle.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// db.flush()?;
    /// db.wait_idle()?;
    /// assert_eq!(db.metrics().compactions_unfinished, 0, "no compaction is under way");
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `NoSpace`: a flush or a compaction waits for disk space.
    /// - The error of a flush or compaction that has failed three times. `Poisoned`, `Closed`.
    pub fn wait_idle(&self) -> Result<()> {
        self.store.wait_idle()
    }

    /// Copies the whole store, as of one commit, into the directory `path`, and waits until the copy is durable.
    ///
    /// The copy consists of hard links to the tables and value files. So the directory must be missing or empty, and on
    /// the file system of the store. The copy takes no extra disk space until the store replaces these files, and
    /// `disk_budget` does not count it. The copy is a store of its own: [`Db::open`] opens it, and changes to one never
    /// reach the other.
    ///
    /// For a backup, copy the files of the checkpoint to another disk and remove it: a checkpoint shares its tables
    /// with the store, so loss of the disk or damage to a table affects both. Do not copy the directory of the open
    /// store itself.
    ///
    /// The call flushes all memtables first, so the copy also holds writes with `Durability::None`. Reads go on
    /// meanwhile, and so do writes as long as there is room in memtables: memtables that become immutable later are not
    /// flushed until the call returns. Once memtables are full, writes stall, or fail with `Busy`. Other flushes,
    /// drops and renames of keyspaces wait. A keyspace that is created meanwhile may be in the copy, without entries.
    /// The time grows with the number of tables. If the call fails, it removes what it has
    /// made, as far as the file system lets it.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// let db = drumlin::Db::open(dir.path().join("store"))?;
    /// db.keyspace("users")?.put("ada", "1815")?;
    /// db.checkpoint(dir.path().join("copy"))?;
    /// let copy = drumlin::Db::open(dir.path().join("copy"))?;
    /// assert!(copy.keyspace("users")?.contains_key("ada")?);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `InvalidArgument`: the path is empty, lies inside the store or is that of a file, or the directory is not
    ///   empty, or another store copies to it or opens it meanwhile.
    /// - `Busy`: another checkpoint of this store is being made.
    /// - `Io`: a system call failed, such as a link to another file system.
    /// - Those of [`Db::flush`].
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        self.store.checkpoint(path.as_ref())
    }

    /// Reads the whole store and checks it: all checksums, the order and counts of entries, the references of the
    /// manifest, and the order of versions between levels. In a keyspace with other findings, the order of versions is
    /// not checked and its value files are not read.
    ///
    /// It reads every table three times, the manifest, and the log records that recovery would read. Reads and writes
    /// go on meanwhile; flushes and compactions are not installed while the manifest is read. The log keeps its
    /// segments as long as they are read, and writes that begin meanwhile are not checked. Damage is not an error of
    /// the call: the report lists it.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// let report = db.verify()?;
    /// assert!(report.findings.is_empty());
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `Closed`.
    /// - `TooManyFiles`: a file could not be opened, since the process or the system has no file descriptors left. The
    ///   error names the limit. Nothing is known about the files that were not read.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.store.verify()
    }

    /// Returns the counters and gauges of the store. Counters start at 0 when the store is opened.
    ///
    /// It costs time in proportion to the number of tables. It does no I/O, and may wait only while a writer begins a
    /// new log segment. [`Keyspace::metrics`] has latencies.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// db.flush()?;
    /// let metrics = db.metrics();
    /// assert_eq!((metrics.commits, metrics.flushes), (1, 1));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn metrics(&self) -> Metrics {
        self.store.read_metrics()
    }

    /// Returns the shape of each keyspace's tree: its levels, runs and files.
    ///
    /// It costs time in proportion to the number of files. It does no I/O, but may wait while another thread writes a
    /// manifest edit. The result contains user data: the key bounds of each file.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// db.flush()?;
    /// let tree = db.tree();
    /// assert_eq!(tree[0].name, "users");
    /// let files = tree[0].levels.iter().flat_map(|level| &level.runs).flat_map(|run| &run.files);
    /// assert_eq!(files.map(|file| file.entries).sum::<u64>(), 1);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn tree(&self) -> Vec<KeyspaceShape> {
        self.store.shape()
    }

    /// Returns the latest decisions of the compaction policies with their reasons, oldest first.
    ///
    /// It returns at most 4096 decisions, including those of earlier opens of the store. It reads the store's decision
    /// logs, at most 8 MiB or so; a log that cannot be read is left out. It may wait while another thread writes a
    /// manifest edit.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// # let users = db.keyspace("users")?;
    /// users.put("ada", "1815")?;
    /// db.flush()?;
    /// for decision in db.explain() {
    ///     println!("{}: {} because {}", decision.keyspace, decision.what, decision.reason);
    /// }
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn explain(&self) -> Vec<DecisionRecord> {
        self.store.explain()
    }

    /// Repeats the logged policy decisions from their logged inputs, and reports those that came out differently.
    ///
    /// It is a check of the policies, which are deterministic, for their developers. It first writes the decisions that
    /// wait to be logged, reads the store's decision logs, at most 8 MiB or so, and changes nothing else.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// let report = db.replay_decisions();
    /// assert!(report.differing.is_empty());
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn replay_decisions(&self) -> ReplayReport {
        self.store.replay_decisions()
    }

    /// Sets the store option `name`. The change takes effect at once and is durable when the call returns.
    ///
    /// [`Options`] lists names, defaults and bounds. Only options that are marked `live` can be set here. A call costs
    /// one fsync of the manifest.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// db.set_option("background_rate", "100MiB")?;
    /// let refused = db.set_option("memory_budget", "1GiB").expect_err("it is not live");
    /// assert_eq!(refused.kind(), drumlin::ErrorKind::InvalidOption);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `InvalidOption`: names the option, the value and the bounds, or says that only [`Builder::set`] can set it.
    ///   Nothing changes.
    /// - `NoSpace`, `TooManyFiles`: the change cannot be written now. Nothing changes.
    /// - `ReadOnly`, `Poisoned`, `Closed`. `Io`: writing the manifest failed; writes fail from now on.
    pub fn set_option(&self, name: &str, value: &str) -> Result<()> {
        self.store.set_option(name, value)
    }

    /// Returns the names and values of all store options, as text that [`Builder::set`] accepts.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// assert!(db.options().contains(&("durability", "buffered".to_owned())));
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    pub fn options(&self) -> Vec<(&'static str, String)> {
        self.store.options.load().pairs()
    }

    /// Runs up to `steps` background steps in a simulated environment, for tests. Returns `false` once no step can run.
    /// In the environment of the operating system it runs none and returns `false`. Needs the feature `testing`.
    ///
    /// ```
    /// let mem = drumlin::env::MemEnv::new(1);
    /// let db = drumlin::Db::builder("/store").env(mem.env()).open()?;
    /// db.keyspace("users")?.put("ada", "1815")?;
    /// db.step_background(100)?;
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed`. `Bug`: the call was made from a background step.
    #[cfg(feature = "testing")]
    pub fn step_background(&self, steps: usize) -> Result<bool> {
        self.store.health.check_open()?;
        for _ in 0..steps {
            if !self.store.background.step_any()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Closes the store: stops background work, waits for running writes, makes the log durable and releases the
    /// directory.
    ///
    /// All logged writes survive power loss then. Close does not flush memtables: the next open reads the log. **Writes
    /// with `Durability::None` that were not flushed are lost**; call [`Db::flush`] first. Running compactions are
    /// abandoned and start again after the next open. Writes that wait for flushes or compactions fail with `Closed`.
    /// Closing a store again does nothing and returns the same result.
    ///
    /// The call takes one handle, but closes the store for all of them. Every fallible call that starts later, through
    /// any handle or snapshot, fails with `Closed`; infallible calls such as [`metrics`](Db::metrics) keep reporting
    /// the state at close.
    ///
    /// Close does not wait for iterators, cursors and snapshots; [`Event::Closed`](crate::Event::Closed) reports their
    /// numbers. Open iterators and cursors keep their view until they are dropped. For that, close opens all tables
    /// that they may still read. If the process has few file descriptors left, some tables stay closed. Such an
    /// iterator may then fail with `Io` or `TooManyFiles`, once another process or a later open of the store has
    /// removed the files.
    ///
    /// ```
    /// # let dir = drumlin::env::TempDir::new("drumlin-doc").expect("a temporary directory");
    /// # let db = drumlin::Db::open(dir.path())?;
    /// let users = db.keyspace("users")?;
    /// db.close()?;
    /// let error = users.get("ada").expect_err("the store is closed");
    /// assert_eq!(error.kind(), drumlin::ErrorKind::Closed);
    /// # Ok::<(), drumlin::Error>(())
    /// ```
    ///
    /// # Errors
    /// - `Poisoned`: an earlier failure stopped all writes, or the log cannot be made durable.
    /// - `NoSpace`, `Io`, `TooManyFiles`: the manifest or the end of the log could not be written. The store is closed
    ///   and no acknowledged write is lost. The next open may recover it as after a crash. If only the record of the
    ///   close found no disk space, close returns `Ok`, and the next open recovers too.
    /// - `Busy`: a write has been running for over 60 s. The directory stays locked until it finishes and all handles
    ///   are dropped.
    pub fn close(self) -> Result<()> {
        self.store.close()
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("path", &self.path)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Db({})", self.store.files.dir.display())
    }
}
