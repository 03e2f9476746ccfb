//! Writes libraries for tests.

/// A compute kernel of a library: its name, bitcode and function constants (name, number of the type, index).
pub(crate) struct Compiled<'a> {
    pub(crate) name: &'a str,
    pub(crate) bitcode: &'a [u8],
    pub(crate) constants: &'a [(&'a str, u8, u16)],
}

fn tag(out: &mut Vec<u8>, tag: &[u8; 4], bytes: &[u8]) {
    out.extend(tag);
    out.extend((bytes.len() as u16).to_le_bytes());
    out.extend(bytes);
}

fn text(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

/// A library of kernels.
pub(crate) fn library(kernels: &[Compiled<'_>]) -> Vec<u8> {
    let (mut list, mut public, mut bitcode) = (Vec::new(), Vec::new(), Vec::new());
    for Compiled { name, bitcode: code, constants } in kernels {
        let mut entry = Vec::new();
        tag(&mut entry, b"NAME", &text(name));
        tag(&mut entry, b"TYPE", &[2]);
        let offsets = [public.len() as u64, 0, bitcode.len() as u64];
        tag(&mut entry, b"OFFT", &offsets.map(u64::to_le_bytes).concat());
        tag(&mut entry, b"VERS", &[2, 0, 6, 0, 3, 0, 1, 0]);
        tag(&mut entry, b"MDSZ", &(code.len() as u64).to_le_bytes());
        entry.extend(b"ENDT");
        list.extend((entry.len() as u32 + 4).to_le_bytes());
        list.extend(entry);
        let mut described = Vec::new();
        if !constants.is_empty() {
            let listed = constants.iter().flat_map(|(name, kind, index)| [text(name), vec![*kind], index.to_le_bytes().to_vec(), vec![1]].concat());
            tag(&mut described, b"CNST", &[&(constants.len() as u16).to_le_bytes()[..], &listed.collect::<Vec<_>>()].concat());
        }
        described.extend(b"ENDT");
        public.extend((described.len() as u32 + 4).to_le_bytes());
        public.extend(described);
        bitcode.extend(*code);
    }
    let (start, listed) = (88, list.len() as u64);
    let sections = [public, Vec::new(), bitcode];
    let mut header = b"MTLB\x01\x80\x02\x00\x07\x00\x00\x81\x0e\x00\x00\x00".to_vec();
    let total = start + 4 + listed + sections.iter().map(|section| section.len() as u64).sum::<u64>();
    header.extend([total, start, listed].map(u64::to_le_bytes).concat());
    let mut at = start + 4 + listed;
    for section in &sections {
        header.extend([at, section.len() as u64].map(u64::to_le_bytes).concat());
        at += section.len() as u64;
    }
    [header, (kernels.len() as u32).to_le_bytes().to_vec(), list, sections.concat()].concat()
}
