//! Symbols that C and C++ code looks up in this program. Without them RocksDB is slower than its experts would run it.

/// RocksDB's build with the feature `io-uring` uses io_uring only if the program defines this function and it returns
/// `true`. MultiGet then reads the blocks of one file at the same time.
// SAFETY: RocksDB declares it with this signature (`env/fs_posix.cc`), and nothing else defines it.
#[cfg(feature = "rocksdb")]
#[unsafe(export_name = "RocksDbIOUringEnable")]
extern "C" fn rocksdb_io_uring_enable() -> bool {
    true
}

/// Configuration of jemalloc: huge pages for every allocation, of all engines. Drumlin asks for huge pages for its
/// memtables by itself.
// SAFETY: jemalloc reads a pointer to a text that ends with 0 under this name, and nothing else defines it.
#[unsafe(export_name = "malloc_conf")]
pub static MALLOC_CONF: &[u8; 11] = b"thp:always\0";
