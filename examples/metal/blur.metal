// Blurs an image of one channel: each point becomes the mean of the three by three around it. Beyond an edge its own points repeat.
#include <metal_stdlib>
using namespace metal;

kernel void blur(device const float* image [[buffer(0)]],
                 device float* blurred [[buffer(1)]],
                 uint2 position [[thread_position_in_grid]],
                 uint2 size [[threads_per_grid]])
{
    const int2 last = int2(size) - 1;
    float sum = 0.0f;
    for (int dy = -1; dy <= 1; ++dy) {
        for (int dx = -1; dx <= 1; ++dx) {
            const int2 at = clamp(int2(position) + int2(dx, dy), int2(0), last);
            sum += image[at.y * int(size.x) + at.x];
        }
    }
    blurred[position.y * size.x + position.x] = sum / 9.0f;
}
