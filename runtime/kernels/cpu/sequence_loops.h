// Loops of runtime/kernels/sequence.h, compiled for several instruction sets.
#pragma once

#include <cstdint>

namespace rondo {
struct GateGradient;
struct GateState;
}  // namespace rondo

namespace rondo::cpu {

// to += from
void accumulate(const float* from, float* to, int64_t count);

// One row: y = (x - mean) scale gamma + beta, where gamma and beta may be null. Gives mean and scale.
void layer_norm_row(const float* x, float epsilon, const float* gamma, const float* beta, float* y,
                    int64_t count, float* mean, float* scale);
// One row's gradient, and its part of the gradients of gamma and beta, added to float64 sums (may be null).
void layer_norm_gradient_row(const float* x, const float* dy, float mean, float scale, const float* gamma,
                             float* dx, double* d_gamma, double* d_beta, int64_t count);

// One sample of a time step; pointers of the state are moved to it by the caller. Gates are `hard` or not.
void lstm_forward_row(const GateState& s, int64_t units, bool hard);
void lstm_backward_row(const GateGradient& g, int64_t units, bool hard);
void gru_forward_row(const GateState& s, int64_t units, bool hard);
void gru_backward_row(const GateGradient& g, int64_t units, bool hard);
// A GRU with the reset gate before the product, by the halves of its steps.
void gru_reset_row(const GateState& s, int64_t units, bool hard);
void gru_candidate_row(const GateState& s, int64_t units);
void gru_candidate_backward_row(const GateGradient& g, int64_t units);
void gru_reset_backward_row(const GateGradient& g, int64_t units, bool hard);

}  // namespace rondo::cpu
