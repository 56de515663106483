#include "models/graph/objective.h"

#include <cmath>
#include <limits>

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
  if (rows == 0.0) return std::numeric_limits<double>::quiet_NaN();
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

}  // namespace rondo
