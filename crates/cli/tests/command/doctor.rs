//! `elinvar doctor` and `elinvar bench table` as a user runs them.

use std::process::{Command, Output};

fn elinvar(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_elinvar")).args(arguments).output().unwrap()
}

#[test]
fn a_sound_device_is_reported_on_one_page() {
    let output = elinvar(&["doctor", "--device", "cpu", "--quick"]);
    let page = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{page}");
    for expected in
        [concat!("elinvar ", env!("CARGO_PKG_VERSION")), "processor ", "cache ", " 0 of them do not compile", " 0 failed", "verdict   sound: cpu"]
    {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    assert!(page.lines().count() < 40 && !page.contains("cuda:0"), "{page}");
}

#[test]
fn a_device_that_is_not_there_is_no_verdict() {
    let output = elinvar(&["doctor", "--device", "cuda:99"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("cuda:99 is not available here"));
    assert!(!String::from_utf8(output.stdout).unwrap().contains("verdict"));
}

#[test]
fn the_fixed_table_has_ten_verified_rows_and_sizes_to_compare() {
    let output = elinvar(&["bench", "table", "--device", "cpu", "--seconds", "0.01", "--largest", "4096", "--json"]);
    let table: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 10);
    // Without a GPU there is nothing of one.
    let is_of_the_cpu = |row: &serde_json::Value| row["cpu_alone_us"].as_f64().is_some_and(|us| us > 0.0) && row.get("alone_us").is_none();
    assert!(rows.iter().all(|row| is_of_the_cpu(row) && row["target_us"].as_f64().is_some()), "{rows:?}");
    let sweeps = table["sweeps"].as_array().unwrap();
    assert_eq!(sweeps.len(), 3);
    for sweep in sweeps {
        let sizes: Vec<_> = sweep["points"].as_array().unwrap().iter().map(|point| point["elements"].as_u64().unwrap()).collect();
        assert_eq!((sizes, sweep.get("resident_wins_from")), (vec![1024, 4096], None));
    }
}

#[test]
fn a_table_without_a_gpu_says_that_its_columns_are_left_out() {
    let output = elinvar(&["bench", "table", "--device", "cpu", "--seconds", "0.01", "--largest", "1024"]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("there is no GPU here") && !table.contains("faster"), "{table}");
}
