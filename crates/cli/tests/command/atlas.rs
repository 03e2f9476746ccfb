//! `elinvar run` and `elinvar emit` as a user runs them.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use safetensors::SafeTensors;

const SAXPY: &str = "../../examples/saxpy.atlas";

fn elinvar(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elinvar"));
    let Output { status, stdout, stderr } = command.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn run(file: &str, more: &[&str]) -> (i32, String, String) {
    let arguments = ["run", file, "--linear", "100", "--buffer", "x=f32:100:1.5", "--buffer", "y=f32:100:0.5", "--scalar", "a=2", "--scalar", "n=99"];
    elinvar(&[&arguments, more].concat())
}

#[test]
fn a_program_s_results_are_printed_and_saved() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ran.safetensors");
    let (code, out, err) = run(SAXPY, &["--device", "cpu", "--print", "2", "--repeat", "2", "--save", file.to_str().unwrap()]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.starts_with("y: 3.5 3.5 …\nsaxpy on ") && out.contains("median of 2"), "{out}");
    let bytes = fs::read(&file).unwrap();
    let saved = SafeTensors::deserialize(&bytes).unwrap();
    let y: Vec<f32> = saved.tensor("y").unwrap().data().chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect();
    assert!(y[..99].iter().all(|y| *y == 3.5) && y[99] == 0.5);
}

#[test]
fn a_shared_array_has_the_length_of_the_launch() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("backwards.atlas");
    let text = "atlas 1\nprogram backwards\nbuffer y: update u32\nshared all: u32[]\nkernel\n  t = local_index\n  n = block_size.x\n  v = mul t 10\n  \
                store all[t] v\n  barrier\n  b = sub n t\n  b = sub b 1\n  w = load all[b]\n  store y[t] w\nend\n";
    fs::write(&file, text).unwrap();
    let arguments = ["run", file.to_str().unwrap(), "--device", "cpu", "--block", "4", "--buffer", "y=u32:4:0"];
    let (code, out, err) = elinvar(&[&arguments[..], &["--shared-memory", "16"]].concat());
    assert!(code == 0 && out.starts_with("y: 30 20 10 0\n"), "{out}{err}");
    let (code, _, err) = elinvar(&arguments);
    assert!(code == 2 && err.contains("0 bytes of shared memory: 'all' needs whole elements of u32, one at least"), "{err}");
}

#[test]
fn a_program_is_written_in_other_forms() {
    let (code, metal, _) = elinvar(&["emit", SAXPY, "--to", "metal"]);
    assert!(code == 0 && metal.contains("[[kernel]] void program_saxpy(") && metal.contains("metal::fma("), "{metal}");
    let (code, cuda, _) = elinvar(&["emit", SAXPY, "--to", "cuda"]);
    assert!(code == 0 && cuda.contains("__global__"), "{cuda}");
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join("saxpy.bin");
    let (code, _, err) = elinvar(&["emit", SAXPY, "--to", "binary", "--out", binary.to_str().unwrap()]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(run(binary.to_str().unwrap(), &["--device", "cpu"]).1.starts_with("y: 3.5 "));
    let text = |file: &str| elinvar(&["emit", file, "--to", "text"]).1;
    assert_eq!(text(binary.to_str().unwrap()), text(SAXPY));
}

#[test]
fn a_buffer_is_drawn() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mandelbrot.png");
    let size =
        ["--block", "16,16", "--grid", "4,2", "--buffer", "counts=u32:2048", "--scalar", "width=64", "--scalar", "height=32", "--device", "cpu"];
    let draw = |picture: &str| elinvar(&[&["run", "../../examples/mandelbrot.atlas"], &size[..], &["--png", picture]].concat());
    let (code, _, err) = draw(&format!("counts=64x32:{}", file.display()));
    assert_eq!((code, err.as_str()), (0, ""));
    let mut picture = png::Decoder::new(std::io::BufReader::new(fs::File::open(&file).unwrap())).read_info().unwrap();
    let mut points = vec![0; 2048];
    let info = picture.next_frame(&mut points).unwrap();
    assert_eq!((info.width, info.height, info.color_type), (64, 32, png::ColorType::Grayscale));
    // The middle of the set never escapes, the corner does at once.
    assert!(points[16 * 64 + 45] == 255 && points[0] < 10, "{} {}", points[16 * 64 + 45], points[0]);
    let (code, _, err) = draw("counts=64x33:wrong.png");
    assert!(code == 2 && err.contains("2048 elements are no picture of 64x33 points"), "{err}");
    let (code, _, err) = draw("colours=64x32:wrong.png");
    assert!(code == 2 && err.contains("--png colours: there is no such buffer"), "{err}");
}

#[test]
fn faulty_programs_are_reported() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wrong.atlas");
    fs::write(&file, "atlas 1\nprogram wrong\nkernel\n  i = position.w\nend\n").unwrap();
    let (code, _, err) = elinvar(&["run", file.to_str().unwrap()]);
    assert!(code == 2 && err.contains("wrong.atlas: line 4, column 7: 'position.w' is no instruction"), "{err}");
    let (code, _, err) = run(SAXPY, &["--device", "cpu", "--scalar", "b=1"]);
    assert!(code == 2 && err.contains("--scalar b: the program has no such scalar"), "{err}");
    let endless = Path::new(env!("CARGO_TARGET_TMPDIR")).join("endless.atlas");
    fs::write(&endless, "atlas 1\nprogram endless\nkernel\n  b = block.x\n  loop\n    c = ge b 0\n    while c\n  end\nend\n").unwrap();
    let (code, _, err) = elinvar(&["run", endless.to_str().unwrap(), "--device", "cpu", "--steps", "1000"]);
    assert!(code == 2 && err.contains("line 5, column 3: the loops of a thread took more steps than they may"), "{err}");
    let trusting = Path::new(env!("CARGO_TARGET_TMPDIR")).join("trusting.atlas");
    fs::write(&trusting, "atlas 1\nprogram trusting\nbounds unchecked\nkernel\nend\n").unwrap();
    let (code, _, err) = elinvar(&["run", trusting.to_str().unwrap(), "--device", "cpu"]);
    assert!(code == 2 && err.contains("line 3, column 8") && err.contains("--unchecked"), "{err}");
    assert_eq!(elinvar(&["run", trusting.to_str().unwrap(), "--device", "cpu", "--unchecked"]).0, 0);
    let wide = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wide.atlas");
    fs::write(&wide, "atlas 1\nprogram wide\nscalar a: f64\nkernel\nend\n").unwrap();
    let (code, _, err) = elinvar(&["emit", wide.to_str().unwrap(), "--to", "metal"]);
    assert!(code == 2 && err.contains("uses f64, which Metal does not have"), "{err}");
    let (code, _, err) = run(SAXPY, &["--device", "cpu", "--block", "2048"]);
    assert!(code == 2 && err.contains("a block of 2048 threads: 1024 at most"), "{err}");
}
