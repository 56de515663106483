#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/random.h"
#include "runtime/kernels/cpu/context.h"
#include "runtime/kernels/cpu/dropout_loops.h"
#include "runtime/kernels/cpu/factories.h"
#include "runtime/kernels/cpu/layout.h"
#include "runtime/kernels/cpu/loops.h"
#include "runtime/kernels/cpu/parallel.h"

namespace rondo::cpu {
namespace {

// How one sample lies in memory: channels in blocks, each block a plane of pixels.
struct SampleOrder {
  bool canonical = true;
  int64_t floats = 0;  // of a sample in memory, padding included
  int64_t height = 0, width = 0, channels = 0;
  int64_t block = 1;                                     // channels that are neighbours in memory
  int64_t plane = 0, line_stride = 0, pixel_stride = 0;  // strides of block, row and column
};

// Layouts other than plain strides with at most one block of channels are not walked.
std::optional<SampleOrder> sample_order(const TensorDesc& desc) {
  SampleOrder order;
  order.floats = desc.bytes() / static_cast<int64_t>(sizeof(float)) / desc.shape[0];
  if (desc.layout.canonical()) return order;
  const auto& layout = dnnl_layout(desc.layout).desc().data;
  if (layout.ndims != 4 || layout.format_kind != dnnl_blocked) return std::nullopt;
  const auto& blocking = layout.format_desc.blocking;
  const bool by_channel = blocking.inner_nblks == 1 && blocking.inner_idxs[0] == 1;
  if (blocking.inner_nblks > 0 && !by_channel) return std::nullopt;
  if (layout.dims[0] > 1 && blocking.strides[0] != order.floats) return std::nullopt;
  order.canonical = false;
  order.channels = desc.shape[3];
  order.height = desc.shape[1];
  order.width = desc.shape[2];
  order.block = by_channel ? blocking.inner_blks[0] : 1;
  order.plane = blocking.strides[1];
  order.line_stride = blocking.strides[2];
  order.pixel_stride = blocking.strides[3];
  return order;
}

// Moves the mask of a sample from canonical order to the order of memory.
void arrange(const SampleOrder& order, const uint8_t* drawn, uint8_t* mask) {
  for (int64_t c = 0; c < order.channels; c += order.block) {
    uint8_t* plane = mask + c / order.block * order.plane;
    const auto length = static_cast<size_t>(std::min(order.block, order.channels - c));
    for (int64_t h = 0; h < order.height; ++h) {
      const uint8_t* from = drawn + h * order.width * order.channels + c;
      uint8_t* to = plane + h * order.line_stride;
      for (int64_t w = 0; w < order.width; ++w, from += order.channels, to += order.pixel_stride) {
        if (length == 8) {
          std::memcpy(to, from, 8);  // a single move
        } else {
          std::memcpy(to, from, length);
        }
      }
    }
  }
}

int64_t round_up(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

// The mask is drawn once, in forward, and kept as one byte an element for backward: reading it back costs a
// tenth of drawing again.
class CpuDropout final : public DropoutKernel {
 public:
  CpuDropout(const ContextPtr& context, const DropoutSpec& spec, const SampleOrder& order)
      : threads_(context->threads),
        spec_(spec),
        rows_(spec.desc.shape[0]),
        elements_(spec.desc.elements() / rows_),
        order_(order),
        // k * 2^-24 >= rate exactly where k >= ceil(rate * 2^24).
        threshold_(static_cast<uint32_t>(std::ceil(static_cast<double>(spec.rate) * 0x1.0p24))),
        scale_(1.0f / (1.0f - spec.rate)),
        mask_(context->device.allocate(rows_ * order_.floats + kDropoutGroup)) {
    if (!order_.canonical) drawn_ = context->device.allocate(threads_ * drawn_stride());
  }
  std::string implementation() const override { return "loop"; }
  const TensorDesc& desc() const override { return spec_.desc; }

  void forward(const Execution& on, const Tensor& in, const Tensor& out) override {
    RONDO_CHECK(on.state != nullptr);
    const auto key = philox_key({on.state->seed, RandomPurpose::kDropout, spec_.stream});
    const int64_t share = (rows_ + threads_ - 1) / threads_;
    const int team = rows_ * elements_ > kFloatGrain / 4 ? threads_ : 1;
    parallel_ranges(team, rows_, share, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        draw({key, static_cast<uint32_t>(on.state->first_row + r), static_cast<uint64_t>(on.state->step)}, r,
             drawn_.as<uint8_t>() + begin / share * drawn_stride());
        apply(in, out, r);
      }
    });
  }
  void backward(const Execution&, const Tensor& grad_out, const Tensor& grad_in) override {
    const int64_t grain = std::max<int64_t>(1, kFloatGrain / order_.floats);
    parallel_ranges(threads_, rows_, grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) apply(grad_out, grad_in, r);
    });
  }

 private:
  int64_t drawn_stride() const { return round_up(elements_, kDropoutGroup); }
  uint8_t* mask(int64_t row) const { return mask_.as<uint8_t>() + row * order_.floats; }

  void draw(const DropoutRow& at, int64_t row, uint8_t* drawn) const {
    if (!order_.canonical) {
      draw_mask(at, threshold_, 0, elements_, drawn);
      arrange(order_, drawn, mask(row));
      return;
    }
    // Whole groups go straight to the mask; the last one would run into the next row.
    const int64_t whole = elements_ / kDropoutGroup * kDropoutGroup;
    draw_mask(at, threshold_, 0, whole, mask(row));
    if (whole == elements_) return;
    std::array<uint8_t, kDropoutGroup> tail;
    draw_mask(at, threshold_, whole, elements_ - whole, tail.data());
    std::memcpy(mask(row) + whole, tail.data(), static_cast<size_t>(elements_ - whole));
  }
  void apply(const Tensor& in, const Tensor& out, int64_t row) const {
    apply_mask(in.as<const float>() + row * order_.floats, mask(row), scale_,
               out.as<float>() + row * order_.floats, order_.floats);
  }

  int threads_;
  DropoutSpec spec_;
  int64_t rows_, elements_;
  SampleOrder order_;
  uint32_t threshold_;
  float scale_;
  Buffer mask_;   // in the order of memory
  Buffer drawn_;  // one row in canonical order for each thread
};

}  // namespace

std::unique_ptr<DropoutKernel> make_dropout(ContextPtr context, const DropoutSpec& spec) {
  require_float(spec.desc, "dropout");
  require(spec.rate >= 0.0f && spec.rate < 1.0f, "dropout: the rate must lie in [0, 1), got {}", spec.rate);
  auto order = sample_order(spec.desc);
  if (order) return std::make_unique<CpuDropout>(context, spec, *order);
  DropoutSpec plain = spec;
  plain.desc.layout = {};
  return std::make_unique<CpuDropout>(context, plain, *sample_order(plain.desc));
}

}  // namespace rondo::cpu
