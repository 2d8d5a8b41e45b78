//! Symbols that C and C++ code looks up in this program.

/// Configuration of jemalloc: huge pages for every allocation, of all engines. Drumlin asks for huge pages for its
/// memtables by itself.
// SAFETY: jemalloc reads a pointer to a text that ends with 0 under this name, and nothing else defines it.
#[unsafe(export_name = "malloc_conf")]
pub static MALLOC_CONF: &[u8; 11] = b"thp:always\0";

#[cfg(test)]
mod tests {
    #[test]
    fn jemalloc_reads_the_configuration() {
        let mut value: *const std::ffi::c_char = std::ptr::null();
        let mut len = size_of_val(&value);
        // SAFETY: `opt.thp` is a text that jemalloc keeps for ever, and `len` is the size of `value`.
        let text = unsafe {
            let to = (&raw mut value).cast();
            let rc =
                tikv_jemalloc_sys::mallctl(c"opt.thp".as_ptr(), to, &raw mut len, std::ptr::null_mut(), 0);
            assert_eq!(rc, 0);
            std::ffi::CStr::from_ptr(value)
        };
        assert_eq!(text, c"always");
    }
}
