//! One budget of filter bits for the tables of all keyspaces.
//!
//! Keyspaces whose option `filter_bits` is `auto` share a budget and a price; each other keyspace has its own. A job (a
//! flush or a piece) registers when it begins. The *ledger* is the sum of keys and filter bits over the installed
//! trees. It subtracts the inputs of running jobs, and adds what their outputs have and are expected to get. So jobs
//! that run at the same time do not spend the same bits.
//!
//! The *price* is the number of block reads that one more bit of filters saves (`drumlin_policy::filter::price`). It is
//! solved when a job begins, over the tables that stay and those that running jobs are expected to build. For a
//! compaction that merges many of the keys, the mean over the recent past counts as well. A manual compaction of many
//! keys is judged as if the keyspace were one run. A job of a frozen keyspace does not solve the price again; jobs of
//! other keyspaces in its group do.
//!
//! A reference to a part of a table counts with the bits of its keys. The whole filter may stay cached; the ledger then
//! underestimates its memory.
//!
//! Once the *life* of a level's tables is known (`stats/lives.rs`), new tables of the level get Ribbon filters if their
//! lookups will repay the cost (`drumlin_policy::filter::method`).
//!
//! Invariant: a job stays registered until its outputs are durable or dropped. Until the tree is replaced, the ledger
//! has its inputs instead.

use crate::keyspace::KeyspaceState;
use crate::options::{Adaptation, FilterMode};
use crate::version::{FileMeta, Run, Tree};
use arc_swap::ArcSwap;
use drumlin_env::sync::{Arc, Mutex};
use drumlin_format::filter::Method;
use drumlin_policy::filter::allot::{Allotment, Budget, Ledger, Wish, allot};
use drumlin_policy::filter::density::Density;
use drumlin_policy::filter::mean::MeanPrice;
use drumlin_policy::filter::method::{Outlook, ribbon_pays};
use drumlin_policy::filter::price::{Item, Price, solve};
use drumlin_policy::filter::rate::BLOOM;
use drumlin_policy::filter::weight::{Allocation, KeyspaceLoad, all_lookups, prior, weight};
use drumlin_types::contract::LevelDesign;
use drumlin_types::{Key, KeyRange, KeyspaceId, LEVELS, TableId};
use std::collections::{BTreeMap, BTreeSet};

/// Bits per key on average, if the option leaves them to the store and the memory suffices.
const MOST_AVERAGE: f64 = 10.0;
/// Share of the memory budget that filters may take, if the option leaves them to the store.
const MEMORY_SHARE: f64 = 0.25;
/// Weight of a job in the mean survival of its level.
const SURVIVAL_WEIGHT: f64 = 0.25;
/// Maximum number of runs of a level that the mode `monkey` counts.
const MOST_RUNS: f64 = 64.0;
/// Number of facts per keyspace above which those of dropped keyspaces are removed: twice the number of levels.
const KEPT_PER_KEYSPACE: usize = 2 * LEVELS;
/// Lookups of a keyspace, lately or since the open, from which on the life of its tables counts. A load without reads
/// says nothing about later reads.
const LIFE_LOOKUPS: u64 = 50_000;
/// A Ribbon filter may take one part in this many of the memory budget while it is built, in 8 bytes per key.
const RIBBON_MEMORY_SHARE: u64 = 16;
/// Change of the bits per key at which a job of the same level is explained again in the decision log.
const NEWS: f64 = 0.5;
/// Change of the budget's average, as a share, up to which a frozen price applies.
const SAME_AVERAGE: f64 = 0.05;

/// Keyspaces that share a budget.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Group {
    /// All keyspaces with `filter_bits = auto`.
    Joint,
    /// A keyspace with bits of its own.
    Own(KeyspaceId),
}

/// A part of a file that a job merges, as the ledger needs it.
#[derive(Debug)]
pub(super) struct LeavingPart {
    pub(super) table: TableId,
    /// First key of the part.
    pub(super) start: Key,
    pub(super) keys: f64,
    pub(super) bits: f64,
}

/// What the whole compaction of a piece merges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergeScope {
    /// Share of the keyspace's keys.
    pub(crate) share: f64,
    pub(crate) is_manual: bool,
}

/// Description of a job for the budget.
pub(super) struct Work {
    pub(super) keyspace: Arc<KeyspaceState>,
    /// Level of the outputs.
    pub(super) level: u8,
    pub(super) parts: Vec<LeavingPart>,
    /// Keys that the inputs hold.
    pub(super) keys_in: f64,
    /// What the whole compaction merges; `None` for a flush.
    pub(super) merged: Option<MergeScope>,
    /// Number of outputs expected.
    pub(super) tables: f64,
    /// Expected number of vain lookups of all outputs together.
    pub(super) empty: f64,
    /// Hull of the outputs.
    pub(super) hull: KeyRange,
    /// Level capacities that the compaction policy designs, for [`Allocation::Monkey`].
    pub(super) design: Vec<LevelDesign>,
    /// Time of a block that a lookup searches in vain, in ns; 0 if unknown.
    pub(super) block_ns: f64,
}

/// A running job.
struct RunningJob {
    work: Work,
    /// Share of the inputs that was read when the last output was finished.
    progress: f64,
    /// Recent mean share of the input keys that survives in outputs of this level.
    survival: f64,
    /// Bits per key that are reserved for outputs that are not built yet.
    reserved: f64,
    /// Price by which its outputs are judged, solved when it began.
    price: Option<Price>,
    /// Outputs so far.
    built: Ledger,
    /// Keys of the table whose bits the job is asking for; 0 for none.
    asked: f64,
}

impl RunningJob {
    /// Returns the number of keys that the outputs are expected to hold.
    fn expected(&self) -> f64 {
        let done = self.built.keys + self.asked;
        let keys_in = self.work.keys_in;
        let read = keys_in * self.progress;
        // The survival of earlier jobs counts as much as `keys_in` keys, so that this job's own has at most half of the
        // weight.
        let survival = (done + self.survival * keys_in) / (read + keys_in).max(1.0);
        done + (keys_in - read).max(0.0) * survival.min(1.0)
    }

    /// Returns by how many keys its keyspace is expected to grow, which may be negative.
    fn added_keys(&self) -> f64 {
        self.expected() - self.work.parts.iter().map(|part| part.keys).sum::<f64>()
    }

    /// Returns the keys and bits that the outputs are expected to have, without the bits of a table that is asked for.
    fn outputs(&self) -> Ledger {
        let whole = self.expected();
        let rest = (whole - self.built.keys - self.asked).max(0.0);
        Ledger { keys: whole, bits: self.built.bits + rest * self.reserved }
    }
}

#[derive(Default)]
struct BudgetState {
    jobs: BTreeMap<u64, RunningJob>,
    next: u64,
    /// Last price of each group, divided by the lookups per key at that time, and the average for which it was solved.
    prices: BTreeMap<Group, (Price, f64)>,
    means: BTreeMap<Group, MeanPrice>,
    /// Mean share of the input keys that outputs have, by keyspace and output level.
    survival: BTreeMap<(KeyspaceId, u8), f64>,
    /// Bits per key of the last job that was explained, and whether it built Ribbon filters, by keyspace and output
    /// level.
    explained: BTreeMap<(KeyspaceId, u8), (f64, bool)>,
}

impl BudgetState {
    /// Removes the facts about dropped keyspaces once more than `KEPT_PER_KEYSPACE` for each keyspace are kept.
    fn forget_dropped(&mut self, keyspaces: &[Arc<KeyspaceState>]) {
        let most = KEPT_PER_KEYSPACE * (keyspaces.len() + 1);
        if self.survival.len().max(self.means.len()) <= most {
            return;
        }
        let live: BTreeSet<KeyspaceId> = keyspaces.iter().map(|keyspace| keyspace.id).collect();
        self.survival.retain(|(id, _), _| live.contains(id));
        self.explained.retain(|(id, _), _| live.contains(id));
        let is_live = |group: &Group| match group {
            Group::Joint => true,
            Group::Own(id) => live.contains(id),
        };
        self.means.retain(|group, _| is_live(group));
        self.prices.retain(|group, _| is_live(group));
    }
}

/// Budget of filter bits of a store.
pub(crate) struct FilterBudget {
    keyspaces: Arc<ArcSwap<Vec<Arc<KeyspaceState>>>>,
    /// Memory budget of the store in bytes.
    memory: u64,
    state: Mutex<BudgetState>,
}

/// Inputs of a decision about filters, for its explanation in the decision log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Basis {
    pub(crate) mode: FilterMode,
    pub(crate) budget: Budget,
    pub(crate) ledger: Ledger,
    pub(crate) price: Option<Price>,
    /// What was expected of the table, if the life of tables of its level is known.
    pub(crate) outlook: Option<Outlook>,
}

/// Filter that a table gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) allotment: Allotment,
    pub(crate) method: Method,
    pub(crate) basis: Basis,
}

impl Basis {
    /// Returns the basis with `bits` more bits in the ledger: those of the table that was decided.
    pub(super) fn with(self, bits: f64) -> Basis {
        Basis { ledger: Ledger { bits: self.ledger.bits + bits, ..self.ledger }, ..self }
    }
}

impl FilterBudget {
    pub(crate) fn new(keyspaces: Arc<ArcSwap<Vec<Arc<KeyspaceState>>>>, memory: u64) -> FilterBudget {
        FilterBudget { keyspaces, memory, state: Mutex::default() }
    }

    /// Returns whether the bits of tables of `keyspace` depend on lookups.
    pub(super) fn counts_lookups(keyspace: &KeyspaceState) -> bool {
        mode(keyspace) == Allocation::MnemosynePlus
    }

    /// Registers a job. Returns its number.
    pub(super) fn begin(&self, work: Work) -> u64 {
        let mut state = self.state.lock();
        let group = group(&work.keyspace);
        let members = self.members(group);
        state.forget_dropped(&self.keyspaces.load());
        let keys: f64 = members.iter().map(|member| keys_of(member)).sum();
        let job = RunningJob {
            progress: 0.0,
            survival: state.survival.get(&(work.keyspace.id, work.level)).copied().unwrap_or(1.0),
            reserved: self.budget(&work.keyspace, keys + work.keys_in).average,
            price: None,
            built: Ledger::default(),
            asked: 0.0,
            work,
        };
        let may_differ = job.work.keyspace.filters_differ();
        let number = state.next;
        state.next += 1;
        state.jobs.insert(number, job);
        if !may_differ {
            return number;
        }
        let price = self.solve_price(&mut state, group, number);
        let ledger = self.ledger(&state, group);
        let prior = prior_of(&state.jobs, &state.jobs[&number].work.keyspace, ledger.keys);
        let Some(job) = state.jobs.get_mut(&number) else { return number };
        job.price = price;
        let keys = job.expected() / job.work.tables;
        let item = Item { keys, weight: weight_of_outputs(&job.work, prior) / job.work.tables };
        // Without the bits that were reserved for it so far.
        let others = Ledger { bits: (ledger.bits - keys * job.reserved).max(0.0), ..ledger };
        job.reserved = self.decide(job, &item, &others).0.bits;
        number
    }

    /// Returns the filter for an output of job `number` with `keys` keys and `empty` expected vain lookups. `progress`
    /// is the share of the inputs that was read.
    pub(super) fn allot(&self, number: u64, keys: f64, empty: f64, progress: f64) -> Granted {
        let mut state = self.state.lock();
        let Some(job) = state.jobs.get_mut(&number) else {
            unreachable!("a job asks for bits before it ends");
        };
        job.progress = progress;
        job.asked = keys;
        let keyspace = job.work.keyspace.clone();
        // Below one bit per key some tables get one bit and others none, depending on the rest of the budget.
        let is_alike = keyspace.options.load().filter_bits.is_some_and(|bits| bits == 0.0 || bits >= 1.0);
        if !keyspace.filters_differ() && is_alike {
            // Neither other tables nor the weight matter.
            let (allotment, basis) = self.decide(job, &Item { keys, weight: 0.0 }, &Ledger::default());
            return Granted { allotment, method: Method::Bloom, basis };
        }
        let share = keys / job.expected().max(1.0);
        let ledger = self.ledger(&state, group(&keyspace));
        let job = &state.jobs[&number];
        let weight = match mode(&keyspace) {
            Allocation::Uniform => 0.0,
            mode => {
                let prior = prior_of(&state.jobs, &keyspace, ledger.keys);
                weight(mode, empty, hull_share(&job.work) * share, prior)
            }
        };
        let item = Item { keys, weight };
        let (allotment, basis) = self.decide(job, &item, &ledger);
        let outlook = outlook(job, &item, share);
        let is_ribbon = outlook.is_some_and(|outlook| ribbon_pays(&outlook, allotment.bits))
            && keys * 8.0 <= (self.memory / RIBBON_MEMORY_SHARE) as f64;
        let method = if is_ribbon { Method::Ribbon } else { Method::Bloom };
        Granted { allotment, method, basis: Basis { outlook, ..basis } }
    }

    /// Notes that an output of job `number` was built.
    pub(super) fn built(&self, number: u64, keys: f64, bits: f64) {
        if let Some(job) = self.state.lock().jobs.get_mut(&number) {
            job.asked = 0.0;
            job.built.keys += keys;
            job.built.bits += keys * bits;
        }
    }

    /// Returns whether outputs of `level` with `bits` bits per key are worth a place in the decision log, which is
    /// short: whether those explained last had noticeably other bits, or another kind of filter. Notes that they are
    /// explained.
    pub(super) fn is_news(&self, keyspace: KeyspaceId, level: u8, bits: f64, is_ribbon: bool) -> bool {
        let explained = &mut self.state.lock().explained;
        let is_news = |last: &(f64, bool)| (last.0 - bits).abs() >= NEWS || last.1 != is_ribbon;
        let is_news = explained.get(&(keyspace, level)).is_none_or(is_news);
        if is_news {
            explained.insert((keyspace, level), (bits, is_ribbon));
        }
        is_news
    }

    /// Notes that job `number` has read all inputs and built all outputs.
    pub(super) fn done(&self, number: u64) {
        if let Some(job) = self.state.lock().jobs.get_mut(&number) {
            job.progress = 1.0;
        }
    }

    /// Removes a job. `is_done` tells that all its outputs were built.
    pub(super) fn end(&self, number: u64, is_done: bool) {
        let mut state = self.state.lock();
        let Some(job) = state.jobs.remove(&number) else { return };
        if is_done && job.work.keys_in > 0.0 {
            let survived = (job.built.keys / job.work.keys_in).clamp(0.0, 1.0);
            let mean = state.survival.entry((job.work.keyspace.id, job.work.level)).or_insert(survived);
            *mean += SURVIVAL_WEIGHT * (survived - *mean);
        }
    }

    fn decide(&self, job: &RunningJob, item: &Item, ledger: &Ledger) -> (Allotment, Basis) {
        let budget = self.budget(&job.work.keyspace, ledger.keys);
        let (wish, price) = match mode(&job.work.keyspace) {
            Allocation::Uniform => (Wish::Bits(budget.average), None),
            Allocation::Monkey => match monkey(&job.work, budget.average) {
                Some(bits) => (Wish::Bits(bits), None),
                None => (Wish::Priced(job.price), job.price),
            },
            Allocation::MonkeyDynamic | Allocation::Mnemosyne | Allocation::MnemosynePlus => {
                (Wish::Priced(job.price), job.price)
            }
        };
        let mode = job.work.keyspace.options.load().filter_mode;
        (allot(wish, item, budget, ledger), Basis { mode, budget, ledger: *ledger, price, outlook: None })
    }

    /// Returns the budget of `keyspace`, if its group has `keys` keys.
    fn budget(&self, keyspace: &KeyspaceState, keys: f64) -> Budget {
        match keyspace.options.load().filter_bits {
            Some(bits) => Budget::fixed(bits),
            None => Budget::automatic(MOST_AVERAGE, MEMORY_SHARE * self.memory as f64, keys),
        }
    }

    /// Returns the keyspaces of `group`.
    fn members(&self, group: Group) -> Vec<Arc<KeyspaceState>> {
        self.keyspaces.load().iter().filter(|keyspace| self::group(keyspace) == group).cloned().collect()
    }

    /// Returns the ledger of `group` as of the end of all jobs. It has the keys of tables that jobs ask for, but not
    /// their bits.
    fn ledger(&self, state: &BudgetState, group: Group) -> Ledger {
        let mut ledger = Ledger::default();
        for keyspace in self.members(group) {
            let settled = keyspace.view().tree.filters();
            ledger.keys += settled.keys;
            ledger.bits += settled.bits;
        }
        let is_member = |job: &&RunningJob| {
            let keyspace = &job.work.keyspace;
            self::group(keyspace) == group && !keyspace.is_dropped()
        };
        for job in state.jobs.values().filter(is_member) {
            let (outputs, parts) = (job.outputs(), &job.work.parts);
            ledger.keys += job.added_keys();
            ledger.bits += outputs.bits - parts.iter().map(|part| part.bits).sum::<f64>();
        }
        Ledger { keys: ledger.keys.max(0.0), bits: ledger.bits.max(0.0) }
    }

    /// Solves the price of `group` for job `number`.
    fn solve_price(&self, state: &mut BudgetState, group: Group, number: u64) -> Option<Price> {
        let job = &state.jobs[&number];
        let members = self.members(group);
        let ledger = self.ledger(state, group);
        let budget = self.budget(&job.work.keyspace, ledger.keys);
        let is_counted = |keyspace: &&Arc<KeyspaceState>| mode(keyspace) == Allocation::MnemosynePlus;
        let lookups = members.iter().filter(is_counted).map(|keyspace| keyspace.density.lookups() as f64);
        let per_key = all_lookups(lookups.sum()) / ledger.keys.max(1.0);
        // Weights grow with the number of lookups, so a frozen price is scaled with it.
        let is_frozen = job.work.keyspace.options.load().adaptation == Adaptation::Frozen;
        if let Some((price, average)) = state.prices.get(&group).filter(|_| is_frozen)
            && (average - budget.average).abs() <= SAME_AVERAGE * average
        {
            // The mean is not updated either.
            let price = price.times(per_key);
            let mean = state.means.get(&group).copied().unwrap_or_default();
            return Some(mean.for_job(&price, None, per_key, scope_of(job, ledger.keys)));
        }
        let mut items = Vec::new();
        for keyspace in members.iter().filter(|keyspace| mode(keyspace) != Allocation::Uniform) {
            let prior = prior_of(&state.jobs, keyspace, ledger.keys);
            add_items(&state.jobs, keyspace, &keyspace.view().tree, prior, &mut items);
        }
        let keys: f64 = items.iter().map(|item| item.keys).sum();
        let Some(price) = solve(&items, budget.corrected(&ledger) * keys, BLOOM) else {
            state.prices.remove(&group);
            return None;
        };
        let mean = state.means.entry(group).or_default();
        // Only flushes advance the mean; its clock is flushed keys.
        let merged = scope_of(job, ledger.keys);
        if job.work.merged.is_none() {
            mean.note(&price, per_key, merged);
        }
        state.prices.insert(group, (price.times(1.0 / per_key), budget.average));
        let alone = job.work.merged.filter(|scope| scope.is_manual).and_then(|_| {
            let prior = prior_of(&state.jobs, &job.work.keyspace, ledger.keys);
            price_alone(&job.work.keyspace, prior, budget.corrected(&ledger))
        });
        Some(mean.for_job(&price, alone.as_ref(), per_key, merged))
    }
}

/// Returns the share of the group's `keys` that the job of a flush or compaction replaces or adds.
fn scope_of(job: &RunningJob, keys: f64) -> f64 {
    match job.work.merged {
        Some(scope) => scope.share * keys_of(&job.work.keyspace) / keys.max(1.0),
        None => job.expected() / keys.max(1.0),
    }
}

/// Returns the price if `keyspace` were one run with an `average` of bits per key. The lookups of its buckets of keys
/// divide the vain lookups of that run.
fn price_alone(keyspace: &KeyspaceState, prior: f64, average: f64) -> Option<Price> {
    let tree = keyspace.view().tree.clone();
    let density = keyspace.density.density();
    let vain = vain_of_one_run(&tree, &density);
    let (all, buckets) = (density.lookups.iter().sum::<f64>(), density.lookups.len() as f64);
    let keys = tree.filters().keys;
    let item = |own: &f64| {
        let share = if all > 0.0 { own / all } else { 0.0 };
        Item { keys: keys / buckets, weight: weight(mode(keyspace), vain * share, 1.0 / buckets, prior) }
    };
    solve(&density.lookups.iter().map(item).collect::<Vec<Item>>(), average * keys, BLOOM)
}

/// Keys, vain lookups and coverage of a run, for the estimate of [`vain_of_one_run`].
struct VainRun {
    keys: u64,
    vain: f64,
    /// Share of the keyspace's keys inside the bounds of its files.
    covered: f64,
}

impl VainRun {
    fn of(run: &Run, density: &Density) -> VainRun {
        let bounds: Vec<KeyRange> = run.files.iter().map(|file| file.bounds.clone()).collect();
        let covered: f64 = density.buckets.shares(&bounds).iter().sum();
        VainRun {
            keys: run.files.iter().map(|file| file.counts.keys).sum(),
            vain: run.files.iter().map(|file| file.lookups().empty).sum(),
            covered: covered.min(1.0),
        }
    }
}

/// Estimates the vain lookups of `tree` if it were one run: those of the largest run of the deepest level. That run may
/// have holes, as while a compaction installs its output part by part. There, the vain lookups of the largest run above
/// count.
fn vain_of_one_run(tree: &Tree, density: &Density) -> f64 {
    let mut levels = tree.levels.iter().rev().filter(|level| !level.runs.is_empty());
    let of = |run: &Arc<Run>| VainRun::of(run, density);
    let deepest = levels.next().and_then(|level| level.runs.iter().map(of).max_by_key(|run| run.keys));
    let Some(deepest) = deepest else { return 0.0 };
    let other = levels.flat_map(|level| &level.runs).map(of).max_by_key(|run| run.keys);
    let rest = other
        .filter(|other| other.covered > 0.0)
        .map_or(0.0, |other| other.vain * ((1.0 - deepest.covered) / other.covered).min(1.0));
    deepest.vain + rest
}

/// Adds the tables of `keyspace` to `items`: those that stay, and those that jobs will build.
fn add_items(
    jobs: &BTreeMap<u64, RunningJob>,
    keyspace: &Arc<KeyspaceState>,
    tree: &Tree,
    prior: f64,
    items: &mut Vec<Item>,
) {
    let jobs = || jobs.values().filter(|job| Arc::ptr_eq(&job.work.keyspace, keyspace));
    let mut leaving: BTreeMap<TableId, Vec<&LeavingPart>> = BTreeMap::new();
    for part in jobs().flat_map(|job| &job.work.parts) {
        leaving.entry(part.table).or_default().push(part);
    }
    let staying = |file: &FileMeta| {
        let parts = leaving.get(&file.id()).map_or(&[][..], |parts| parts);
        let gone = parts.iter().filter(|part| file.bounds.contains(&part.start)).map(|part| part.keys);
        let keys = file.counts.keys as f64;
        if keys > 0.0 { ((keys - gone.sum::<f64>()) / keys).max(0.0) } else { 0.0 }
    };
    let mode = mode(keyspace);
    let buckets = keyspace.density.density().buckets;
    for run in tree.levels.iter().flat_map(|level| &level.runs) {
        let bounds: Vec<KeyRange> = run.files.iter().map(|file| file.bounds.clone()).collect();
        for (file, share) in run.files.iter().zip(buckets.shares(&bounds)) {
            let stays = staying(file);
            let weight = weight(mode, stays * file.lookups().empty, stays * share, prior);
            items.push(Item { keys: stays * file.counts.keys as f64, weight });
        }
    }
    for job in jobs() {
        let tables = job.work.tables;
        let weight = weight_of_outputs(&job.work, prior) / tables;
        items.extend(std::iter::repeat_n(Item { keys: job.expected() / tables, weight }, tables as usize));
    }
}

/// Returns the weight of all outputs of `work` together.
fn weight_of_outputs(work: &Work, prior: f64) -> f64 {
    weight(mode(&work.keyspace), work.empty, hull_share(work), prior)
}

/// Returns what is expected of a table that has a `share` of the keys of `job`, or `None` if the life of tables of its
/// level is not known.
fn outlook(job: &RunningJob, item: &Item, share: f64) -> Option<Outlook> {
    let Work { keyspace, level, block_ns, .. } = &job.work;
    let life = keyspace.lives.of(*level)?;
    let is_known = mode(keyspace) == Allocation::MnemosynePlus
        && keyspace.density.all().max(keyspace.density.lookups()) >= LIFE_LOOKUPS
        && *block_ns > 0.0
        && item.keys > 0.0;
    if !is_known {
        return None;
    }
    // The weight includes the prior, because the load may change.
    let vain = (item.weight / (keyspace.density.lookups() as f64).max(1.0)).min(1.0);
    let probed = (hull_share(&job.work) * share).max(vain).min(1.0);
    Some(Outlook { keys: item.keys, life, vain, probed, block_ns: *block_ns })
}

/// Returns the prior of a run over all keys of `keyspace`. Its group has `all_keys` keys as of the end of all `jobs`.
///
/// If the group has other keyspaces, the keys of `keyspace` count as of the end of all jobs too: its first flush has
/// keys before the tree has. A keyspace alone in its group counts the keys in its tree, so the price of the first
/// flushes is lower than it should be. This makes up for a mean price that would leave a part of the budget unused (3.8
/// of 4 bits per key in the test of even lookups).
fn prior_of(jobs: &BTreeMap<u64, RunningJob>, keyspace: &Arc<KeyspaceState>, all_keys: f64) -> f64 {
    let in_tree = keys_of(keyspace);
    let of_jobs = jobs.values().filter(|job| Arc::ptr_eq(&job.work.keyspace, keyspace));
    let in_the_end = in_tree + of_jobs.map(RunningJob::added_keys).sum::<f64>();
    let is_alone = all_keys - in_the_end < 1.0;
    let own = if is_alone { in_tree } else { in_the_end };
    let load = KeyspaceLoad { lookups: keyspace.density.lookups() as f64, keys: own.max(1.0) };
    prior(mode(keyspace), &load, all_keys.max(own).max(1.0))
}

/// Returns the share of the keyspace's keys that the outputs of `work` cover.
fn hull_share(work: &Work) -> f64 {
    let buckets = work.keyspace.density.density().buckets;
    buckets.shares(std::slice::from_ref(&work.hull)).first().copied().unwrap_or(1.0)
}

fn group(keyspace: &KeyspaceState) -> Group {
    match keyspace.options.load().filter_bits {
        Some(_) => Group::Own(keyspace.id),
        None => Group::Joint,
    }
}

fn mode(keyspace: &KeyspaceState) -> Allocation {
    match keyspace.options.load().filter_mode {
        FilterMode::Uniform => Allocation::Uniform,
        FilterMode::Monkey => Allocation::Monkey,
        FilterMode::MonkeyDynamic => Allocation::MonkeyDynamic,
        FilterMode::Mnemosyne => Allocation::Mnemosyne,
        FilterMode::MnemosynePlus => Allocation::MnemosynePlus,
    }
}

/// Returns the number of keys in the files of `keyspace`.
fn keys_of(keyspace: &KeyspaceState) -> f64 {
    keyspace.view().tree.filters().keys
}

/// Returns the bits for the outputs of `work` by the capacities of the levels, or `None` under a policy without
/// capacities. Level 0 gets the average.
fn monkey(work: &Work, average: f64) -> Option<f64> {
    if work.level == 0 {
        return Some(average);
    }
    let tree = work.keyspace.view().tree.clone();
    let deepest = tree.levels.iter().rposition(|level| !level.runs.is_empty()).unwrap_or(0);
    let deepest = deepest.max(usize::from(work.level));
    let mut items = Vec::new();
    for level in 1..=deepest {
        let LevelDesign { bytes, runs } = *work.design.get(level)?;
        // A level without a capacity, such as the last one, counts with its current bytes.
        let bytes = if bytes.is_finite() { bytes } else { level_bytes(&tree, level) };
        if bytes <= 0.0 {
            return None;
        }
        let runs = if runs.is_finite() { runs.clamp(1.0, MOST_RUNS) } else { 1.0 };
        // Keys in bytes: the unit does not matter.
        items.push((level, runs, Item { keys: bytes / runs, weight: 1.0 }));
    }
    let all: Vec<Item> =
        items.iter().flat_map(|(_, runs, item)| std::iter::repeat_n(*item, *runs as usize)).collect();
    let price = solve(&all, average * all.iter().map(|item| item.keys).sum::<f64>(), BLOOM)?;
    let of_level = items.iter().find(|(level, ..)| *level == usize::from(work.level));
    of_level.map(|(_, _, item)| price.bits(item, true))
}

/// Returns the bytes of a level of `tree`.
fn level_bytes(tree: &Tree, level: usize) -> f64 {
    tree.levels[level].runs.iter().flat_map(|run| &run.files).map(|file| file.counts.bytes as f64).sum()
}

#[cfg(test)]
mod tests;
