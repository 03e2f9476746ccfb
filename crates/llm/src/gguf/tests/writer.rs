//! Writes files, also such as no reader may accept.

/// A file in the making.
#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) version: u32,
    pub(crate) alignment: usize,
    pub(crate) keys: Vec<u8>,
    pub(crate) key_count: u64,
    pub(crate) tensors: Vec<u8>,
    pub(crate) tensor_count: u64,
    pub(crate) data: Vec<u8>,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self { version: 3, alignment: 32, keys: Vec::new(), key_count: 0, tensors: Vec::new(), tensor_count: 0, data: Vec::new() }
    }

    /// A value of the type of this number.
    pub(crate) fn raw(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.keys.extend(text(key));
        self.keys.extend(kind.to_le_bytes());
        self.keys.extend(value);
        self.key_count += 1;
        self
    }

    pub(crate) fn u32(self, key: &str, value: u32) -> Self {
        self.raw(key, 4, &value.to_le_bytes())
    }

    pub(crate) fn u16(self, key: &str, value: u16) -> Self {
        self.raw(key, 2, &value.to_le_bytes())
    }

    pub(crate) fn f32(self, key: &str, value: f32) -> Self {
        self.raw(key, 6, &value.to_le_bytes())
    }

    pub(crate) fn bool(self, key: &str, value: bool) -> Self {
        self.raw(key, 7, &[value.into()])
    }

    pub(crate) fn text(self, key: &str, value: &str) -> Self {
        self.raw(key, 8, &text(value))
    }

    /// An array of values of the type of this number.
    pub(crate) fn array(self, key: &str, kind: u32, values: &[Vec<u8>]) -> Self {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend((values.len() as u64).to_le_bytes());
        bytes.extend(values.iter().flatten());
        self.raw(key, 9, &bytes)
    }

    pub(crate) fn texts(self, key: &str, values: &[&str]) -> Self {
        self.array(key, 8, &values.iter().map(|value| text(value)).collect::<Vec<_>>())
    }

    /// A tensor of the type of this number, `dims` row-major, at the next multiple of the alignment.
    pub(crate) fn tensor(self, name: &str, kind: u32, dims: &[u64], data: &[u8]) -> Self {
        let offset = self.data.len() as u64;
        self.tensor_at(name, kind, dims, offset, data)
    }

    pub(crate) fn f32s(self, name: &str, dims: &[u64], values: &[f32]) -> Self {
        self.tensor(name, 0, dims, &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>())
    }

    pub(crate) fn tensor_at(mut self, name: &str, kind: u32, dims: &[u64], offset: u64, data: &[u8]) -> Self {
        self.tensors.extend(text(name));
        self.tensors.extend((dims.len() as u32).to_le_bytes());
        self.tensors.extend(dims.iter().rev().flat_map(|d| d.to_le_bytes()));
        self.tensors.extend(kind.to_le_bytes());
        self.tensors.extend(offset.to_le_bytes());
        self.tensor_count += 1;
        self.data.extend(data);
        self.data.resize(self.data.len().next_multiple_of(self.alignment), 0);
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(self.version.to_le_bytes());
        file.extend(self.tensor_count.to_le_bytes());
        file.extend(self.key_count.to_le_bytes());
        file.extend(&self.keys);
        file.extend(&self.tensors);
        if self.tensor_count > 0 {
            file.resize(file.len().next_multiple_of(self.alignment), 0);
        }
        file.extend(&self.data);
        file
    }
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}
