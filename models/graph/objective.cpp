#include "models/graph/objective.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/error.h"

namespace rondo {
namespace {

double quotient(double a, double b) {
  return b == 0.0 ? 0.0 : a / b;
}

// Calls each(tp, fp, next tp, next fp) with the right and wrong positives above each of Keras' thresholds,
// from the highest one down, and those of the next higher one; gives those of the lowest.
struct Positives {
  double right = 0.0, wrong = 0.0;
};
template <class Each>
Positives walk(std::span<const double> histograms, const Each& each) {
  const size_t count = histograms.size() / 2;
  Positives above{histograms[count - 1], histograms[2 * count - 1]};
  for (size_t i = count - 1; i-- > 0;) {
    const Positives here{above.right + histograms[i], above.wrong + histograms[count + i]};
    each(here, above);
    above = here;
  }
  return above;
}

// Trapezoids under the rate of right positives over that of wrong ones.
double roc_area(std::span<const double> histograms) {
  double area = 0.0;
  const Positives all = walk(histograms, [&](const Positives& here, const Positives& next) {
    area += (here.wrong - next.wrong) * (here.right + next.right) / 2.0;
  });
  return quotient(area, all.right * all.wrong);
}

// Davis and Goadrich 2006, as Keras' interpolate_pr_auc: between two thresholds the right positives are taken
// to grow linearly with all positives.
double pr_area(std::span<const double> histograms) {
  double area = 0.0;
  const Positives all = walk(histograms, [&](const Positives& here, const Positives& next) {
    const double gained = here.right - next.right;
    const double p = here.right + here.wrong, q = next.right + next.wrong;
    const double slope = quotient(gained, p - q);
    const double intercept = next.right - slope * q;
    area += slope * (gained + intercept * std::log(p > 0.0 && q > 0.0 ? p / q : 1.0));
  });
  return quotient(area, all.right);
}

}  // namespace

double NamedMetric::of(std::span<const double> sums_of_rows, double rows) const {
  if (rows == 0.0) return weighted ? 0.0 : std::numeric_limits<double>::quiet_NaN();
  switch (value) {
    case MetricValue::kMean:
      break;
    case MetricValue::kRootMean:
      return std::sqrt(sums_of_rows[0] / rows);
    case MetricValue::kNegative:
      return -sums_of_rows[0] / rows;
    case MetricValue::kPrecision:
      return quotient(sums_of_rows[0], sums_of_rows[0] + sums_of_rows[1]);
    case MetricValue::kRecall:
      return quotient(sums_of_rows[0], sums_of_rows[0] + sums_of_rows[2]);
    case MetricValue::kRocArea:
      return roc_area(sums_of_rows);
    case MetricValue::kPrArea:
      return pr_area(sums_of_rows);
  }
  return sums_of_rows[0] / rows;
}

bool Objective::counts_weights() const {
  return std::any_of(metrics.begin(), metrics.end(), [](const NamedMetric& m) { return m.weighted; });
}

bool Objectives::splits_loss() const {
  return outputs.size() != 1 || !loss_names.empty() || outputs[0].weight != 1.0;
}

size_t Objectives::loss_count() const {
  if (!splits_loss()) return 1;
  return 1 + static_cast<size_t>(std::count_if(outputs.begin(), outputs.end(),
                                               [](const Objective& o) { return o.has_loss; }));
}

size_t Objectives::sum_count() const {
  auto count = static_cast<int64_t>(loss_count());
  for (const Objective& output : outputs) {
    for (const NamedMetric& metric : output.metrics) count += metric.sums();
    if (output.counts_weights()) ++count;
  }
  return static_cast<size_t>(count);
}

bool Objectives::sums_loss() const {
  return std::any_of(outputs.begin(), outputs.end(), [](const Objective& o) { return o.has_loss && o.sum; });
}

std::vector<std::string> Objectives::value_names() const {
  std::vector<std::string> names = loss_names;
  for (const Objective& output : outputs) {
    for (const NamedMetric& metric : output.metrics) names.push_back(metric.name);
  }
  return names;
}

void Objectives::values_of(std::span<const double> sums, double rows, std::span<double> values) const {
  double loss = sums[0];
  size_t next = 1, value = 1;
  for (const Objective& output : outputs) {
    if (!splits_loss() || !output.has_loss) continue;
    const double own = sums[next++];
    loss += output.weight * own;
    if (!loss_names.empty()) values[value++] = own / rows;
  }
  values[0] = loss / rows;
  for (const Objective& output : outputs) {
    size_t weights = next;  // where the sum of the weights is
    for (const NamedMetric& metric : output.metrics) weights += static_cast<size_t>(metric.sums());
    for (const NamedMetric& metric : output.metrics) {
      const auto count = static_cast<size_t>(metric.sums());
      values[value++] = metric.of(sums.subspan(next, count), metric.weighted ? sums[weights] : rows);
      next += count;
    }
    if (output.counts_weights()) ++next;
  }
  RONDO_CHECK(value == values.size() && next == sums.size());
}

}  // namespace rondo
