//! The block device that holds a folder, as `/sys` describes it.

use std::fs;
use std::path::Path;

/// Returns model, name and size of the block device that holds `dir`, which need not exist yet. `None` if the file
/// system has no block device.
pub(super) fn of(dir: &Path) -> Option<String> {
    let device = dir.ancestors().find_map(|above| rustix::fs::stat(above).ok())?.st_dev;
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    described(&Path::new("/sys/dev/block").join(number).canonicalize().ok()?)
}

/// Describes the device of which `/sys` has this folder; for a partition, or a device on a single other one, the
/// device below. A virtual device has no model; its driver stands for it.
fn described(folder: &Path) -> Option<String> {
    if folder.join("partition").exists() {
        return described(folder.parent()?);
    }
    let below = fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten();
    if let [only] = &below.collect::<Vec<_>>()[..] {
        return described(&only.path().canonicalize().ok()?);
    }
    let text = |name: &str| {
        let text = fs::read_to_string(folder.join(name)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let driver = || {
        let driver = folder.join("device/driver").canonicalize().ok()?;
        Some(driver.file_name()?.to_string_lossy().into_owned())
    };
    let name = folder.file_name()?.to_string_lossy();
    let model = text("device/model").or_else(driver);
    let sectors: Option<u64> = text("size").and_then(|size| size.parse().ok());
    let size = sectors.map(|sectors| format!(", {} GiB", (sectors * 512) >> 30)).unwrap_or_default();
    Some(model.map_or_else(|| format!("{name}{size}"), |model| format!("{model} {name}{size}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin::env::TempDir;

    #[test]
    fn a_device_has_its_model_or_its_driver() {
        let dir = TempDir::new("drumlin-device").expect("a temporary directory");
        let at = |name: &str| dir.path().join(name);
        let write = |name: &str, text: &str| {
            fs::create_dir_all(at(name).parent().expect("a folder")).expect("the folder");
            fs::write(at(name), text).expect("a file");
        };
        write("nvme0n1/device/model", "A Fast Disk  \n");
        write("nvme0n1/size", "2097152\n");
        write("nvme0n1/nvme0n1p1/partition", "1\n");
        write("drivers/virtio_blk/any", "");
        write("vda/device/any", "");
        write("vda/size", "536870912\n");
        std::os::unix::fs::symlink(at("drivers/virtio_blk"), at("vda/device/driver")).expect("a link");
        write("dm-0/slaves/any", "");
        fs::remove_file(at("dm-0/slaves/any")).expect("an empty folder");
        std::os::unix::fs::symlink(at("nvme0n1/nvme0n1p1"), at("dm-0/slaves/nvme0n1p1")).expect("a link");
        write("loop0/any", "");
        let disk = Some("A Fast Disk nvme0n1, 1 GiB".to_owned());
        assert_eq!(described(&at("nvme0n1/nvme0n1p1")), disk);
        assert_eq!(described(&at("dm-0")), disk);
        assert_eq!(described(&at("vda")), Some("virtio_blk vda, 256 GiB".to_owned()));
        assert_eq!(described(&at("loop0")), Some("loop0".to_owned()));
        assert_eq!(of(Path::new("/proc/self")), None, "no block device");
    }
}
