// <metal_texture>, declared and no more: kernels with textures are not lowered, but the functions they use stand in the text.
#pragma once

namespace metal {
enum class access { sample, read, write, read_write };
enum class coord { normalized, pixel };
enum class address { clamp_to_zero, clamp_to_edge, clamp_to_border, repeat, mirrored_repeat };
enum class s_address { clamp_to_zero, clamp_to_edge, clamp_to_border, repeat, mirrored_repeat };
enum class t_address { clamp_to_zero, clamp_to_edge, clamp_to_border, repeat, mirrored_repeat };
enum class r_address { clamp_to_zero, clamp_to_edge, clamp_to_border, repeat, mirrored_repeat };
enum class filter { nearest, linear, bicubic };
enum class mag_filter { nearest, linear, bicubic };
enum class min_filter { nearest, linear, bicubic };
enum class mip_filter { none, nearest, linear };
enum class compare_func { never, less, less_equal, greater, greater_equal, equal, not_equal, always };
enum class component { x, y, z, w };

struct sampler {
  template <class... A> constexpr sampler(A...) {}
};
struct level {
  float value;
  explicit constexpr level(float l) : value(l) {}
};
struct bias {
  float value;
  explicit constexpr bias(float b) : value(b) {}
};

#define ELV_DECLARE_TEXTURE(name)                                             \
  template <class T, access A = access::sample> struct name {         \
    template <class... P> vec<T, 4> sample(sampler, P...) const;      \
    template <class... P> vec<T, 4> gather(sampler, P...) const;      \
    template <class... P> vec<T, 4> read(P...) const;                 \
    template <class... P> void write(P...) const;                     \
    void fence() const;                                               \
    uint get_width(uint lod = 0) const;                               \
    uint get_height(uint lod = 0) const;                              \
    uint get_depth(uint lod = 0) const;                               \
    uint get_array_size() const;                                      \
    uint get_num_mip_levels() const;                                  \
  };
ELV_DECLARE_TEXTURE(texture1d)
ELV_DECLARE_TEXTURE(texture1d_array)
ELV_DECLARE_TEXTURE(texture2d)
ELV_DECLARE_TEXTURE(texture2d_array)
ELV_DECLARE_TEXTURE(texture2d_ms)
ELV_DECLARE_TEXTURE(texture3d)
ELV_DECLARE_TEXTURE(texturecube)
ELV_DECLARE_TEXTURE(texturecube_array)
ELV_DECLARE_TEXTURE(texture_buffer)
ELV_DECLARE_TEXTURE(depth2d)
#undef ELV_DECLARE_TEXTURE
} // namespace metal
