use super::super::write::write;
use super::super::{Snapshot, SnapshotError};
use super::{assert_same, small};
use crate::Error;
use candle_core::{DType, Device, Tensor};
use std::fs;
use std::path::Path;

fn refused(path: &Path) -> SnapshotError {
    match small().save(path) {
        Err(Error::Snapshot(error)) => error,
        other => panic!("{}: {other:?}", path.display()),
    }
}

fn files(folder: &Path) -> Vec<String> {
    let name = |file: std::io::Result<fs::DirEntry>| file.unwrap().file_name().into_string().unwrap();
    let mut all: Vec<String> = fs::read_dir(folder).unwrap().map(name).collect();
    all.sort();
    all
}

#[test]
fn an_old_file_is_replaced_and_nothing_is_left_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    Snapshot::new().save(&path).unwrap();
    small().save(&path).unwrap();
    assert_same(&Snapshot::load(&path).unwrap(), &small());
    assert_eq!(files(folder.path()), ["x"]);
}

#[test]
fn places_where_nothing_can_be_written_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "text").unwrap();
    for path in [file.join("x"), folder.path().join("no/such/folder/x")] {
        assert!(matches!(refused(&path), SnapshotError::Io { .. }));
    }
    for path in [folder.path(), Path::new("/"), Path::new(".."), Path::new("")] {
        assert!(matches!(refused(path), SnapshotError::NotAFile { .. }));
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    assert_eq!(files(folder.path()), ["file"]);
}

#[test]
fn a_read_only_file_is_read_and_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    small().save(&path).unwrap();
    let mut permissions = fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions).unwrap();
    assert!(matches!(refused(&path), SnapshotError::ReadOnly { .. }));
    assert_same(&Snapshot::load(&path).unwrap(), &small());
}

#[cfg(target_os = "linux")]
#[test]
fn a_folder_of_the_system_and_a_device_are_refused() {
    assert!(matches!(refused(Path::new("/proc/x.memopt")), SnapshotError::Io { .. }));
    // A device is not replaced by a file.
    assert!(matches!(refused(Path::new("/dev/null")), SnapshotError::NotAFile { .. }));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error() {
    let mut full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    // Small ones are in a buffer until the end, large ones are not.
    let mut large = small();
    large.tensors.insert("large".into(), Tensor::zeros(1_000_000, DType::F32, &Device::Cpu).unwrap());
    for snapshot in [small(), large] {
        let Err(Error::Snapshot(SnapshotError::Io { source, .. })) =
            write(&snapshot, &mut full, Path::new("full"))
        else {
            panic!()
        };
        assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
    }
}

#[cfg(unix)]
#[test]
fn a_link_stays_and_the_file_behind_it_is_replaced() {
    use std::os::unix::fs::{symlink, PermissionsExt};
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    Snapshot::new().save(&file).unwrap();
    symlink(&file, &link).unwrap();
    small().save(&link).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_same(&Snapshot::load(&file).unwrap(), &small());
    // Others may read it, as any file that a program makes.
    let plain = folder.path().join("plain");
    fs::write(&plain, "").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&file), mode(&plain));
}

#[test]
fn what_killed_writers_left_is_removed_and_what_is_in_use_is_not() {
    let folder = tempfile::tempdir().unwrap();
    for name in [".memopt-killed.part", ".memopt-alive.part", "mine.part", ".memopt-other"] {
        fs::write(folder.path().join(name), "half").unwrap();
    }
    fs::create_dir(folder.path().join(".memopt-folder.part")).unwrap();
    let alive = fs::File::open(folder.path().join(".memopt-alive.part")).unwrap();
    alive.lock().unwrap();
    small().save(folder.path().join("x")).unwrap();
    let left = [".memopt-alive.part", ".memopt-folder.part", ".memopt-other", "mine.part", "x"];
    assert_eq!(files(folder.path()), left);
}

#[test]
fn writers_of_one_path_do_not_mix() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let of_writer = |writer: u32| {
        let mut snapshot = Snapshot::new();
        snapshot.set("writer", &writer).unwrap();
        let tensor = Tensor::full(writer, 20_000, &Device::Cpu).unwrap();
        snapshot.tensors.insert("x".into(), tensor);
        snapshot
    };
    of_writer(0).save(&path).unwrap();
    std::thread::scope(|scope| {
        for writer in 1..4 {
            let path = &path;
            scope.spawn(move || {
                let snapshot = of_writer(writer);
                (0..20).for_each(|_| snapshot.save(path).unwrap());
            });
        }
        for _ in 0..100 {
            let read = Snapshot::load(&path).unwrap();
            let writer: u32 = read.get("writer").unwrap();
            assert!(read.tensor("x").unwrap().to_vec1::<u32>().unwrap().iter().all(|&x| x == writer));
        }
    });
    assert_eq!(files(folder.path()), ["x"]);
}
