use super::super::header::{BEGIN, DIGITS, LENGTH};
use super::super::write::hexadecimal;
use super::super::{Damage, Snapshot, SnapshotError};
use super::{assert_same, small};
use crate::Error;
use candle_core::{Device, Tensor};
use sha2::{Digest, Sha256};
use std::path::Path;

fn written(folder: &Path) -> Vec<u8> {
    let path = folder.join("good");
    small().save(&path).unwrap();
    std::fs::read(path).unwrap()
}

fn load(folder: &Path, bytes: &[u8]) -> SnapshotError {
    let path = folder.join("bad");
    std::fs::write(&path, bytes).unwrap();
    match Snapshot::load(&path) {
        Err(Error::Snapshot(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// Gives changed bytes their right checksum.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[DIGITS].fill(b'0');
    let digits = hexadecimal(Sha256::new_with_prefix(&bytes));
    bytes[DIGITS].copy_from_slice(digits.as_bytes());
    bytes
}

#[test]
fn any_changed_byte_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let good = written(folder.path());
    assert_eq!(sealed(good.clone()), good);
    for at in 0..good.len() {
        // One bit, the case of a letter, all bits.
        for bits in [1, 0x20, 0xff] {
            let mut bytes = good.clone();
            bytes[at] ^= bits;
            let error = load(folder.path(), &bytes);
            let begin = (LENGTH..LENGTH + BEGIN.len()).contains(&at);
            match error {
                SnapshotError::Damaged { .. } if !begin => {}
                SnapshotError::Foreign { .. } if begin => {}
                other => panic!("bits {bits:x} of byte {at}: {other}"),
            }
        }
    }
    assert_same(&Snapshot::load(folder.path().join("good")).unwrap(), &small());
}

#[test]
fn any_cut_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let good = written(folder.path());
    for len in 0..good.len() {
        let SnapshotError::Damaged { damage, .. } = load(folder.path(), &good[..len]) else {
            panic!("{len}")
        };
        match damage {
            Damage::Empty => assert_eq!(len, 0),
            Damage::CutOff { expected, got } => {
                assert!(got == len as u64 && got < expected && expected <= good.len() as u64)
            }
            other => panic!("{len}: {other}"),
        }
    }
    let longer = [good.as_slice(), &[0]].concat();
    let SnapshotError::Damaged { damage, .. } = load(folder.path(), &longer) else { panic!() };
    assert_eq!(damage, Damage::TooLong { expected: good.len() as u64, got: good.len() as u64 + 1 });
}

/// A writer that the machine's end interrupted may leave blocks of zeros.
#[test]
fn zeroed_blocks_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let good = written(folder.path());
    for begin in (0..good.len()).step_by(16) {
        let mut bytes = good.clone();
        bytes[begin..].fill(0);
        load(folder.path(), &bytes);
    }
}

#[test]
fn foreign_files_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("candle");
    Tensor::new(&[1f32], &Device::Cpu).unwrap().save_safetensors("x", &path).unwrap();
    let candle = std::fs::read(&path).unwrap();
    let other = br#"{"__metadata__":{"format":"pt"}}"#;
    let other = [&(other.len() as u64).to_le_bytes()[..], other].concat();
    let pickle = b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01x\x94K\x01s.";
    let zip = b"PK\x03\x04\x00\x00\x08\x08\x00\x00archive/data.pkl";
    for bytes in [candle.as_slice(), &other, pickle, zip, b"step: 3\nloss: 0.5\n"] {
        assert!(matches!(load(folder.path(), bytes), SnapshotError::Foreign { .. }));
    }
    for path in [folder.path(), Path::new("/dev/null"), Path::new("")] {
        let Err(Error::Snapshot(error)) = Snapshot::load(path) else { panic!() };
        assert!(matches!(error, SnapshotError::NotAFile { .. } | SnapshotError::Io { .. }), "{error}");
    }
    let missing = Snapshot::load(folder.path().join("none")).unwrap_err().to_string();
    assert!(missing.contains("none` cannot be read"), "{missing}");
}

#[test]
fn another_version_is_refused_with_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = written(folder.path());
    let text = br#"\"version\":1"#;
    let at = bytes.windows(text.len()).position(|window| window == text).unwrap();
    bytes[at + text.len() - 1] = b'7';
    assert!(matches!(
        load(folder.path(), &sealed(bytes.clone())),
        SnapshotError::OtherVersion { version: 7, reads: 1, .. }
    ));
    // A damaged digit does not make another version.
    assert!(matches!(
        load(folder.path(), &bytes),
        SnapshotError::Damaged { damage: Damage::Checksum { .. }, .. }
    ));
}

/// A checksum is no defence against intent: sizes that nobody has are refused before they are allocated.
#[test]
fn absurd_sizes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let good = written(folder.path());
    let replaced = |from: &str, to: &str| {
        let text = String::from_utf8_lossy(&good[LENGTH..]).into_owned();
        assert_eq!((text.matches(from).count(), from.len()), (1, to.len()), "{from} {to}");
        let at = good.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        let mut bytes = good.clone();
        bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        load(folder.path(), &sealed(bytes))
    };
    for error in [replaced("[0,3]", "[9,9]"), replaced("\"F32\"", "\"F64\""), replaced("\"F32\"", "\"I8\" ")]
    {
        assert!(matches!(error, SnapshotError::Damaged { damage: Damage::Header { .. }, .. }), "{error}");
    }
    for length in [u64::MAX, 1 << 40, 0, 8] {
        let mut bytes = good.clone();
        bytes[..LENGTH].copy_from_slice(&length.to_le_bytes());
        assert!(matches!(load(folder.path(), &sealed(bytes)), SnapshotError::Damaged { .. }));
    }
}
