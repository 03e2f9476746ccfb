use crate::{
    Module,
    cuda::{CudaEntry, Threadgroups},
};

fn lowered(text: &str, entries: &[CudaEntry<'_>]) -> String {
    Module::read(&format!("# 1 \"k.metal\"\n{text}")).unwrap().lower_for_cuda(entries, Threadgroups::Uniform).unwrap().text
}

/// The lowered text without its entry points, every run of white space as one blank.
fn words(text: &str) -> String {
    let text = lowered(text, &[]);
    let body = text.split_once("# 1 \"k.metal\"\n").unwrap().1.split_once("\n# 1 \"elinvar-entries\"").unwrap().0;
    body.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn address_spaces_go_and_constant_memory_is_const() {
    assert_eq!(
        words("float f(device const float* p, thread float& x, constant P& q, const constant R* r, constant S* constant* s);"),
        "float f( const float* p, float& x, const P& q, const R* r, const S* const* s);"
    );
    assert_eq!(words("struct S { float get() const device; float put() threadgroup; };"), "struct S { float get() const ; float put() ; };");
}

#[test]
fn global_names_start_from_the_text() {
    assert_eq!(
        words("float f(float x) { ::metal::uint2 y; return (float)::metal::exp(a::b(x) + T<int>::c + decltype(x)::d); }"),
        "float f(float x) { ::msl::metal::uint2 y; return (float)::msl::metal::exp(a::b(x) + T<int>::c + decltype(x)::d); }"
    );
}

#[test]
fn lines_stay_where_they_are() {
    let text = "kernel void\nk(device float* x [[\nbuffer(0)]]) {\n  threadgroup float s[4],\n t;\n}\nfloat f(device T*);\nfloat f(\nthread T*);\n";
    let lowered = lowered(text, &[]);
    let body = lowered.split_once("# 1 \"k.metal\"\n").unwrap().1.split_once("\n# 1 \"elinvar-entries\"").unwrap().0;
    assert_eq!(body.lines().count(), text.lines().count());
}

#[test]
fn tables_are_constants() {
    assert_eq!(
        words(
            "constant float t[] = {1}; constant constexpr uint n = 2; struct S { static constant int m = 1; static constexpr constant int k = 3; };"
        ),
        "constexpr float t[] = {1}; constexpr uint n = 2; struct S { static constexpr int m = 1; static constexpr int k = 3; };"
    );
}

#[test]
fn threadgroup_variables_are_shared() {
    assert_eq!(
        words("void f() { threadgroup float a[4] = {0}, b; alignas(16) threadgroup T c; threadgroup float* p = a; }"),
        "void f() { __shared__ float a[4] , b; alignas(16) __shared__ T c; float* p = a; }"
    );
}

#[test]
fn functions_that_differ_only_in_address_spaces_are_one() {
    assert_eq!(
        words("float f(device T* p) { return 0; } float f(thread T* q) { return 1; } float f(constant T* p) { return 2; }"),
        "float f( T* p) { return 0; } float f(const T* p) { return 2; }"
    );
    assert_eq!(words("float f(device T*); float f(thread T*); float f(device T*) { return 0; }"), "float f( T*); float f( T*) { return 0; }");
    assert_eq!(
        words("template <typename T> int f(device T* p) { return 0; } template <typename T> int f(threadgroup T* p) { return 1; }"),
        "template <typename T> int f( T* p) { return 0; }"
    );
    assert_eq!(
        words("struct A { int f(device T* p) { return 0; } }; struct B { int f(thread T* p) { return 1; } };"),
        "struct A { int f( T* p) { return 0; } }; struct B { int f( T* p) { return 1; } };"
    );
    assert_eq!(
        words("struct S { S(device T* p) : a{1}, b(p) { x(); } S(thread T* p) : a{1}, b(p) { y(); } int a; };"),
        "struct S { S( T* p) : a{1}, b(p) { x(); } int a; };"
    );
    assert_eq!(
        words(
            "struct S { S() thread = default; S() constant = default; operator bool() const device { return 1; } operator bool() const { return 2; } };"
        ),
        "struct S { S() = default; operator bool() const { return 1; } };"
    );
}

#[test]
fn specialisations_are_merged_and_qualified() {
    assert_eq!(
        words(
            "template <typename T> struct P; template <typename T> struct P<device T*> { int a; }; template <typename T> struct P<thread T*> { int b; };"
        ),
        "template <typename T> struct P; template <typename T> struct P< T*> { int a; };"
    );
    assert_eq!(words("template <> struct numeric_limits<T> {};"), "template <> struct metal::numeric_limits<T> {};");
}

#[test]
fn literals_are_float_or_half() {
    assert_eq!(words("float x = 1.0 + 2.5h + 1.5bf + 0x1F;"), "float x = 1.0f + ((half)2.5f) + ((bfloat)1.5f) + 0x1F;");
}

#[test]
fn conditions_beside_literals_get_their_type() {
    assert_eq!(words("float f() { return c ? x : 0; }"), "float f() { return c ? x : elv::like<decltype(x)>(0); }");
    assert_eq!(words("float f() { return c ? -1.0 : x[i]; }"), "float f() { return c ? -1.0f : elv::at_least_float(x[i]); }");
    assert_eq!(words("float f() { return c ? x : y; }"), "float f() { return c ? x : y; }");
    assert_eq!(words("uint f() { return c ? 0u : a << 2; }"), "uint f() { return c ? elv::like<decltype(a << 2)>(0u) : a << 2; }");
    assert_eq!(
        words("int f() { return c ? 1 : d ? 2 : x; }"),
        "int f() { return c ? elv::like<decltype(x)>(1) : d ? elv::like<decltype(x)>(2) : x; }"
    );
}

#[test]
fn ranges_of_designators_fill_arrays() {
    assert_eq!(words("void f() { float s[N] = { [0 ... N - 1] = -1.0f }; int b; }"), "void f() { float s[N] ; elv::fill(s, -1.0f ); int b; }");
}

#[test]
fn entries_pass_on_buffers_values_shared_memory_and_positions() {
    let text = "template <typename T> [[max_total_threads_per_threadgroup(64)]] kernel void k(device T* x [[buffer(0)]], device const T* y [[buffer(2)]], constant P& p [[buffer(1)]], \
                threadgroup T* s [[threadgroup(0)]], threadgroup uint* t [[threadgroup(1)]], uint i [[thread_index_in_simdgroup]]) {}";
    let module = Module::read(text).unwrap();
    let lowered =
        module.lower_for_cuda(&[CudaEntry { kernel: "k<half>", inline: &[1], prefetched: None, cluster: 1 }], Threadgroups::Uniform).unwrap();
    assert_eq!((lowered.entries[0].symbol.as_str(), lowered.entries[0].grid), ("elv_0_k_half_", false));
    let head = "extern \"C\" __global__ void __launch_bounds__(64) elv_0_k_half_(elv::target_t<0, elv_kernel_0>* a0, \
                elv::target_t<1, elv_kernel_0>* a1, \
                const __grid_constant__ elv::value_t<elv::target_t<2, elv_kernel_0>> a2, uint a4) {";
    assert!(lowered.text.contains(head), "{}", lowered.text);
    assert!(lowered.text.contains("typedef decltype(&::msl::k<half>) elv_kernel_0;"), "{}", lowered.text);
    assert!(lowered.text.contains("extern __shared__ __align__(16) char elv_shared[];"));
    assert!(lowered.text.contains("(elv_shared + a4)") && lowered.text.contains("from(ELV_thread_index_in_simdgroup)"), "{}", lowered.text);
}

#[test]
fn an_entry_has_its_cluster() {
    let module = Module::read("[[max_total_threads_per_threadgroup(64)]] kernel void k(device float* x [[buffer(0)]]) {}").unwrap();
    let lowered = module.lower_for_cuda(&[CudaEntry { kernel: "k", inline: &[], prefetched: None, cluster: 4 }], Threadgroups::Uniform).unwrap();
    let head = "extern \"C\" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(64) elv_0_k(";
    assert!(lowered.text.contains(head), "{}", lowered.text);
}

#[test]
fn grids_are_passed_to_kernels_that_ask() {
    let module = Module::read("kernel void k(uint2 n [[threads_per_grid]]) {}").unwrap();
    let lowered = module.lower_for_cuda(&[CudaEntry { kernel: "k", inline: &[], prefetched: None, cluster: 1 }], Threadgroups::Uniform).unwrap();
    assert!(lowered.entries[0].grid);
    assert!(lowered.text.contains("__global__ void elv_0_k(elv::extent elv_grid) {\n  elv::await_launches();\n  ("), "{}", lowered.text);
}

#[test]
fn threads_outside_a_grid_leave_before_the_kernel_begins() {
    let module = Module::read("kernel void k(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1; }").unwrap();
    let wanted = [CudaEntry { kernel: "k", inline: &[], prefetched: None, cluster: 1 }];
    let [uniform, nonuniform] = [Threadgroups::Uniform, Threadgroups::Nonuniform].map(|groups| module.lower_for_cuda(&wanted, groups).unwrap());
    assert!(!uniform.entries[0].grid && !uniform.text.contains("ELV_NONUNIFORM") && !uniform.text.contains("return;"), "{}", uniform.text);
    assert!(nonuniform.entries[0].grid && nonuniform.text.starts_with("#define ELV_NONUNIFORM\n"), "{}", nonuniform.text);
    let entry = "a0, elv::extent elv_grid) {\n  elv::await_launches();\n  const elv::extent elv_size = elv::threadgroup_size(elv_grid);\n  \
                 if (elv::is_outside(elv_size)) return;\n  const elv::extent elv_place = elv::position_in_threadgroup(elv_size);\n  (";
    assert!(nonuniform.text.contains(entry), "{}", nonuniform.text);
}

#[test]
fn rare_parts_of_the_prelude_are_asked_for() {
    assert!(lowered("float2 f(uint x) { return unpack_snorm2x16_to_float(x); }", &[]).starts_with("#define ELV_PACK\n#include \"msl.cuh\"\n"));
    assert!(lowered("float f(float x) { return exp(x); }", &[]).starts_with("#include \"msl.cuh\"\n"));
}

#[test]
fn every_position_has_a_value() {
    let entry = super::PRELUDE.iter().find(|(name, _)| *name == "entry.cuh").unwrap().1;
    for position in crate::Position::ALL {
        assert!(entry.contains(&format!("#define ELV_{} ", position.attribute())), "{}", position.attribute());
    }
}

#[test]
fn every_file_that_the_prelude_includes_is_there() {
    let files: Vec<&str> = super::PRELUDE.iter().map(|(name, _)| *name).collect();
    let included = super::PRELUDE.iter().flat_map(|(_, text)| text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"')));
    let included: Vec<&str> = included.collect();
    // What uses the elementary functions adds the library's.
    assert!(included.iter().all(|name| files.contains(name) || *name == "math.metal"));
    assert!(files.iter().all(|name| *name == "msl.cuh" || included.contains(name)));
}

/// What is added to a text for a kernel `k`.
fn entry(text: &str, prefetched: Option<&[u32]>) -> String {
    lowered(text, &[CudaEntry { kernel: "k", inline: &[], prefetched, cluster: 1 }]).split_once("elinvar-entries").unwrap().1.to_owned()
}

#[test]
fn entries_wait_for_the_launches_ahead_whatever_a_text_calls_its_functions() {
    let waits = |text| entry(text, None).contains(") {\n  elv::await_launches();\n  (");
    assert!(waits("kernel void k(device float* x [[buffer(0)]]) { x[0] = 1; }"));
    assert!(waits("void await_launches(); kernel void k(device float* x [[buffer(0)]]) { await_launches(); x[0] = 1; }"));
    assert!(waits("kernel void k(device float* x [[buffer(0)]]) { float await_launches = 1; x[0] = await_launches; }"));
    assert!(!entry("kernel void k(device float* x [[buffer(0)]]) { elv::await_launches(); x[0] = 1; }", Some(&[])).contains("await_launches"));
}

#[test]
fn what_a_launch_ahead_may_write_is_not_restricted() {
    const TEXT: &str = "kernel void k(device const float* x [[buffer(0)]], device const float* w [[buffer(1)]], device float* y [[buffer(2)]]) {}";
    let restricted = |prefetched| {
        let text = entry(TEXT, prefetched);
        ["a0", "a1", "a2"].map(|name| text.contains(&format!("__restrict__ {name}")))
    };
    assert_eq!(restricted(None), [false; 3]);
    assert_eq!(restricted(Some(&[1])), [false, true, false]);
    assert_eq!(restricted(Some(&[1, 2])), [false, true, false]);
}
