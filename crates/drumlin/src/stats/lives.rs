//! How long the tables of a keyspace live: the number of its lookups from the installation of a table until it is
//! merged away, as a mean over the tables of each level.
//!
//! Of a table that existed when the store was opened, only its life since then is known. It counts if it is not below
//! the mean, or if no mean is known. The manifest keeps the means, like the counts of lookups. They are advisory: a
//! crash loses the most recent.

use drumlin_env::sync::plain::Mutex;
use drumlin_format::manifest::TableLife;
use drumlin_types::LEVELS;

/// Weight of a table in the mean of its level, once that is known.
const WEIGHT: f64 = 1.0 / 64.0;
/// Number of tables of a level at which their mean is used.
pub(crate) const KNOWN_TABLES: u32 = 64;

/// Lives of the tables of one level.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
struct Life {
    mean: f64,
    tables: u32,
}

/// Lives of the tables of a keyspace, by level.
#[derive(Debug, Default)]
pub(crate) struct TableLives(Mutex<[Life; LEVELS]>);

impl TableLives {
    /// Notes tables that were merged away: the level of each, and the number of lookups that it lived for.
    pub(crate) fn note(&self, deaths: &[(u8, u64)]) {
        let mut lives = self.0.lock();
        for (level, lookups) in deaths {
            let Some(life) = lives.get_mut(usize::from(*level)) else { continue };
            life.tables = life.tables.saturating_add(1);
            life.mean += WEIGHT.max(1.0 / f64::from(life.tables)) * (*lookups as f64 - life.mean);
        }
    }

    /// Returns the mean life of the tables of `level` in lookups, or `None` if too few were merged away.
    pub(crate) fn of(&self, level: u8) -> Option<f64> {
        let life = self.0.lock().get(usize::from(level)).copied()?;
        (life.tables >= KNOWN_TABLES).then_some(life.mean)
    }

    /// Returns the lives as the manifest keeps them; empty if no table was merged away.
    pub(crate) fn saved(&self) -> Vec<TableLife> {
        let lives = *self.0.lock();
        let known = lives.iter().enumerate().filter(|(_, life)| life.tables > 0);
        let saved = |(level, life): (usize, &Life)| TableLife {
            level: level as u8,
            tables: life.tables,
            lookups: life.mean as f32,
        };
        known.map(saved).collect()
    }

    /// Takes over lives that were saved.
    pub(crate) fn restore(&self, saved: &[TableLife]) {
        let mut lives = self.0.lock();
        for life in saved {
            if let Some(to) = lives.get_mut(usize::from(life.level)) {
                *to = Life { mean: f64::from(life.lookups), tables: life.tables };
            }
        }
    }

    /// Forgets all lives.
    #[cfg(test)]
    pub(crate) fn clear(&self) {
        *self.0.lock() = <[Life; LEVELS]>::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_known_from_enough_tables_on_and_survives_its_save() {
        let lives = TableLives::default();
        assert_eq!((lives.of(3), lives.saved()), (None, vec![]));
        let deaths = [(3, 100), (3, 300)].repeat(KNOWN_TABLES as usize / 2);
        lives.note(&deaths[1..]);
        assert_eq!(lives.of(3), None);
        lives.note(&deaths[..1]);
        assert!(
            (lives.of(3).expect("known") - 200.0).abs() < 1e-9,
            "the plain mean so far: {:?}",
            lives.of(3)
        );
        assert_eq!((lives.of(2), lives.of(u8::MAX)), (None, None));
        lives.note(&[(u8::MAX, 1), (1, 7)]);
        let restored = TableLives::default();
        restored.restore(&lives.saved());
        assert_eq!(restored.saved(), lives.saved());
        assert_eq!(restored.of(3).map(f64::round), Some(200.0));
        let beyond = TableLife { level: u8::MAX, tables: 70, lookups: 1.0 };
        restored.restore(&[beyond]);
        assert_eq!(restored.saved().len(), 2);
        // Later tables count a sixty-fourth each.
        restored.note(&[(3, 6600)]);
        assert_eq!(restored.of(3).map(f64::round), Some(300.0));
    }
}
