use super::Module;
use crate::kernel::{AddressSpace, Parameter, ParameterKind, Position};

fn read(text: &str) -> Module {
    Module::read(&format!("# 1 \"k.metal\"\n{text}")).unwrap()
}

fn error(text: &str) -> String {
    Module::read(&format!("# 1 \"k.metal\"\n{text}")).unwrap_err().to_string()
}

/// The parameters of the only kernel.
fn parameters(text: &str) -> Vec<Parameter> {
    read(text).kernels()[0].parameters.clone()
}

fn buffer(index: u32, space: AddressSpace, written: bool, element: &str, reference: bool) -> ParameterKind {
    ParameterKind::Buffer { index, space, written, element: element.to_owned(), reference }
}

#[test]
fn limits_of_threads_may_depend_on_template_arguments() {
    let text = "template <typename T, int N> [[kernel, max_total_threads_per_threadgroup(N * 32)]] void k(device T* x) {}
        template [[host_name(\"four\")]] [[kernel]] void k<float, 4>(device float*);";
    let module = Module::read(text).unwrap();
    assert_eq!(module.kernel("four").unwrap().max_total_threads, Some(128));
    assert_eq!(module.kernel("k<half, 2>").unwrap().max_total_threads, Some(64));
}

#[test]
fn parameters_are_read_with_their_bindings() {
    let read = parameters(
        "kernel void k(const device float4 *a [[buffer(2)]], device half* const b [[ buffer(0x1) ]], constant ns::Params<int, 2>& p [[buffer(3)]],
            threadgroup float* s [[threadgroup(1)]], uint3 gid [[thread_position_in_grid]], ushort w [[thread_execution_width]]) {}",
    );
    let names: Vec<&str> = read.iter().map(|parameter| parameter.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "p", "s", "gid", "w"]);
    assert_eq!(read[0].kind, buffer(2, AddressSpace::Device, false, "float4", false));
    assert_eq!(read[1].kind, buffer(1, AddressSpace::Device, true, "half", false));
    assert_eq!(read[2].kind, buffer(3, AddressSpace::Constant, false, "ns::Params<int, 2>", true));
    assert_eq!(read[3].kind, ParameterKind::Threadgroup { index: 1, element: "float".into() });
    assert_eq!(read[4].kind, ParameterKind::Position(Position::ThreadPositionInGrid));
    assert_eq!(read[5].kind, ParameterKind::Position(Position::ThreadsPerSimdgroup));
    assert_eq!((read[0].type_name.as_str(), read[4].type_name.as_str()), ("const device float4*", "uint3"));
}

#[test]
fn indices_left_out_are_the_lowest_free_ones() {
    let read = parameters(
        "kernel void k(device float* a, constant int& b [[buffer(1)]], device int c[4], threadgroup int* d, volatile device uint* e, constant const long f[2]) {}",
    );
    assert_eq!(read[0].kind, buffer(0, AddressSpace::Device, true, "float", false));
    assert_eq!(read[2].kind, buffer(2, AddressSpace::Device, true, "int", false));
    assert_eq!(read[3].kind, ParameterKind::Threadgroup { index: 0, element: "int".into() });
    assert_eq!(read[4].kind, buffer(3, AddressSpace::Device, true, "uint", false));
    assert_eq!((read[5].name.as_str(), &read[5].kind), ("f", &buffer(4, AddressSpace::Constant, false, "long", false)));
}

#[test]
fn indices_may_be_names_and_sums() {
    let read = parameters(
        "enum Index { Weights = 3, Bias }; constant constexpr int base = 7;\nkernel void k(device float* a [[buffer(Weights)]], device float* b [[buffer(Index::Bias + base)]]) {}",
    );
    assert_eq!(read[0].kind, buffer(3, AddressSpace::Device, true, "float", false));
    assert_eq!(read[1].kind, buffer(11, AddressSpace::Device, true, "float", false));
}

#[test]
fn kernels_are_found_in_every_spelling() {
    let module = read(
        "namespace ns { kernel void plain() {} }
        [[kernel]] void attributed(device int* x) {}
        [[host_name(\"renamed\")]] [[max_total_threads_per_threadgroup(4 * 32)]] kernel void function(device int* x) {}
        kernel void declared(device int* x);
        template <typename T, int N = 2> [[kernel]] void generic(device const T* x [[buffer(0)]], device vec<T, N>* y [[buffer(1)]]) {}
        template [[host_name(\"f\")]] [[kernel]] void generic<float, 4>(device const float* x [[buffer(0)]], device vec<float, 4>* y [[buffer(1)]]);
        template [[host_name(\"h\")]] kernel decltype(generic<half>) generic<half>;
        template <> [[host_name(\"special\")]] kernel void generic<int, 3>(device const int* x [[buffer(0)]], device vec<int, 3>* y [[buffer(1)]]) {}
        template float helper<float>(float);",
    );
    let found: Vec<(&str, &str, u32)> =
        module.kernels().iter().map(|kernel| (kernel.name.as_str(), kernel.function.as_str(), kernel.location.line)).collect();
    assert_eq!(
        found,
        [
            ("plain", "ns::plain", 1),
            ("attributed", "attributed", 2),
            ("renamed", "function", 3),
            ("special", "generic<int, 3>", 8),
            ("f", "generic<float, 4>", 6),
            ("h", "generic<half>", 7)
        ]
    );
    assert_eq!(module.kernel("renamed").unwrap().max_total_threads, Some(128));
    let half = module.kernel("h").unwrap();
    assert_eq!(half.parameters[0].kind, buffer(0, AddressSpace::Device, false, "half", false));
    assert_eq!(half.parameters[1].kind, buffer(1, AddressSpace::Device, true, "vec<half, 2>", false));
}

#[test]
fn templates_are_instantiated_on_demand() {
    let module =
        read("namespace ns { template <typename T, bool B> kernel void k(device T* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {} }");
    assert!(module.kernels().is_empty());
    let kernel = module.kernel("k<metal::vec<float, 2>, (1 > 0)>").unwrap();
    assert_eq!(kernel.function, "ns::k<metal::vec<float, 2>, (1> 0)>");
    assert_eq!(kernel.parameters[0].kind, buffer(0, AddressSpace::Device, true, "metal::vec<float, 2>", false));
    let by_default = read("template <typename T, typename E = T> kernel void k(device const E* x [[buffer(0)]]) {}");
    assert_eq!(by_default.kernel("k<half>").unwrap().parameters[0].kind, buffer(0, AddressSpace::Device, false, "half", false));
    let message = module.kernel("missing").unwrap_err().to_string();
    assert!(message.contains("no kernel \"missing\"") && message.contains("ns::k"), "{message}");
}

#[test]
fn function_constants_are_listed_with_type_and_index() {
    let module = read(
        "constant bool flag [[function_constant(0)]];\nconstant metal::uint2 size [[function_constant(600 + 2)]];\nconstant bool both = flag && size.x > 1;
        kernel void k(device float* x [[buffer(0), function_constant(flag)]]) {}",
    );
    let constants: Vec<(&str, u32, &str)> =
        module.constants().iter().map(|constant| (constant.name.as_str(), constant.index, constant.type_name.as_str())).collect();
    assert_eq!(constants, [("flag", 0, "bool"), ("size", 602, "metal::uint2")]);
    assert_eq!(module.kernels()[0].parameters[0].condition.as_deref(), Some("flag"));
}

#[test]
fn kernels_that_cannot_be_launched_are_reported_with_their_line() {
    let cases = [
        ("\nkernel void k(device float* x [[buffers(0)]]) {}", "k.metal:2: unknown attribute [[buffers]]"),
        ("kernel void k(\nuint i) {}", "k.metal:2: kernel \"k\", parameter \"i\": has neither an attribute"),
        ("kernel void k(device float* x [[buffer(unknown)]]) {}", "the index in [[buffer(unknown)]] is no number known here"),
        ("constant int c [[function_constant(N)]];", "k.metal:1: the index of function constant \"c\" is no number known here: N"),
        ("kernel void k() {}\n[[host_name(\"k\")]] kernel void l() {}", "k.metal:2: a second kernel is named \"k\""),
        ("template [[host_name(\"x\")]] kernel void f<float>(device float*);", "k.metal:1: no kernel template \"f\" is declared"),
    ];
    for (text, message) in cases {
        assert!(error(text).contains(message), "{}", error(text));
    }
}

#[test]
fn kernels_with_textures_are_set_aside() {
    let module = read("kernel void t(texture2d<float> image [[texture(0)]]) {}\nkernel void k(device float* x [[buffer(0)]]) {}");
    assert_eq!(module.kernels().len(), 1);
    assert!(module.kernel("t").unwrap_err().is_unsupported());
    assert_eq!(module.unsupported().map(|(name, _)| name).collect::<Vec<_>>(), ["t"]);
    assert!(!module.lower_for_simulator(&["k"]).unwrap().text.contains("image"));
}

#[test]
fn broken_texts_are_read_without_harm() {
    for text in [
        "kernel void k(",
        "template <typename T",
        "[[",
        "[[kernel",
        "template [[host_name(\"",
        "kernel",
        "}}}}",
        "constant int x [[function_constant(",
        "template x;",
        "#",
        "\"",
        "a ? b :",
        "é[[ü(\"ß\")]]",
        "kernel void k([[buffer",
        "using",
        "typedef;",
        "enum {",
        "< > ( ) kernel",
    ] {
        if let Ok(module) = Module::read(text) {
            let names: Vec<String> = module.kernels().iter().map(|kernel| kernel.name.clone()).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            module.lower_for_simulator(&names).unwrap();
            module.lints(320);
            module.size_of(text);
        }
    }
}
