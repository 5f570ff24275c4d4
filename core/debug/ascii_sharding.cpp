#include "core/debug/ascii_sharding.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>

#include "shmap/error.h"

namespace shmap::debug {

namespace {

constexpr int kMinWidth = 9;     // of a cell, with borders
constexpr int kMaxWidth = 80;    // of the drawing
constexpr int kBaseHeight = 10;  // of the whole array, in lines
constexpr double kLinesToColumns = 2.5;
constexpr std::size_t kMaxRows = 32;
constexpr std::size_t kMaxList = 40;  // characters

[[noreturn]] void fail(const Shape& shape, const std::string& what) {
  throw ValueError("visualize_array_sharding: an array of shape " + to_string(shape) + ": " + what);
}

std::string text_of(const Slice& s) {
  return std::to_string(s.start) + ":" + std::to_string(s.stop);
}

// Returns "0,1,2"; a long list is shortened to "0-511" or "0,8,16,…,504 (64 devices)".
std::string id_list(const std::set<int>& ids) {
  std::string list, ranges;
  for (int id : ids) list += (list.empty() ? "" : ",") + std::to_string(id);
  if (list.size() <= kMaxList) return list;
  for (auto it = ids.begin(); it != ids.end();) {
    const int first = *it;
    int last = first;
    for (++it; it != ids.end() && *it == last + 1; ++it) last = *it;
    ranges += (ranges.empty() ? "" : ",") + std::to_string(first);
    if (last != first) ranges += "-" + std::to_string(last);
  }
  if (ranges.size() <= kMaxList) return ranges;
  auto it = ids.begin();
  std::string ends;
  for (int i = 0; i < 3; ++i) ends += std::to_string(*it++) + ",";
  return ends + "...," + std::to_string(*ids.rbegin()) + " (" + std::to_string(ids.size()) +
         " devices)";
}

// The slices into which one dim is cut, in order.
class Cuts {
 public:
  void add(const Slice& s) { parts_.emplace(std::pair(s.start, s.stop), 0); }
  void finish(const Shape& shape, std::int64_t extent, std::size_t dim) {
    std::int64_t end = 0;
    std::size_t n = 0;
    for (auto& [part, index] : parts_) {
      if (part.first != end) {
        fail(shape, "dim " + std::to_string(dim) + " is not cut into parts that adjoin: at " +
                        std::to_string(end) + " comes " + text_of({part.first, part.second}));
      }
      end = part.second;
      index = n++;
    }
    if (end != extent) {
      fail(shape, "no device holds " + text_of({end, extent}) + " of dim " + std::to_string(dim));
    }
  }
  std::size_t count() const { return parts_.size(); }
  std::size_t index_of(const Slice& s) const { return parts_.at({s.start, s.stop}); }
  double share(std::size_t i, std::int64_t extent) const {  // as a fraction of the extent
    const auto& part = std::next(parts_.begin(), static_cast<std::ptrdiff_t>(i))->first;
    if (extent == 0) return 1;
    return static_cast<double>(part.second - part.first) / static_cast<double>(extent);
  }

 private:
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> parts_;
};

struct Column {
  int wanted = 0;  // columns in proportion to its share of the array, with borders
  int inside = 0;  // without borders
};

struct Drawing {
  std::vector<Column> columns;
  std::vector<int> heights;
  std::vector<std::vector<std::string>> labels;
};

// Keeps the first and last `edge` of v and puts `middle` between them.
template <class T>
void elide(std::vector<T>& v, std::size_t edge, const T& middle) {
  v[edge] = middle;
  v.erase(v.begin() + static_cast<std::ptrdiff_t>(edge) + 1,
          v.end() - static_cast<std::ptrdiff_t>(edge));
}

int total_width(const std::vector<Column>& columns) {
  int total = 1;
  for (const Column& c : columns) total += c.inside + 1;
  return total;
}

void fit(Drawing& d) {
  if (d.labels.size() > kMaxRows) {
    const std::size_t edge = kMaxRows / 2;
    elide(d.heights, edge, 0);
    elide(d.labels, edge, std::vector<std::string>(d.columns.size(), "..."));
  }
  std::vector<int> needed(d.columns.size());
  for (const auto& row : d.labels)
    for (std::size_t j = 0; j < row.size(); ++j)
      needed[j] = std::max(needed[j], static_cast<int>(row[j].size()));
  const auto widen = [&](int limit) {
    for (std::size_t j = 0; j < d.columns.size(); ++j)
      d.columns[j].inside = std::max(std::min(d.columns[j].wanted, limit) - 2, needed[j]);
  };
  widen(kMaxWidth);
  if (total_width(d.columns) <= kMaxWidth) return;
  const int count = static_cast<int>(d.columns.size());
  const int share = (kMaxWidth - 1) / count - 1;  // most columns of each cell without borders
  for (Column& c : d.columns) c.wanted = std::min(c.wanted, std::max(share, 0) + 2);
  widen(kMaxWidth);
  if (total_width(d.columns) <= kMaxWidth || count < 4) return;
  // Even the labels alone do not fit: shows as many columns on each side as fit, at least one.
  int left = kMaxWidth - 5;  // for the first border and "...│"
  std::size_t edge = 0;
  for (std::size_t j = 0; 2 * j + 2 < d.columns.size(); ++j) {
    left -= d.columns[j].inside + d.columns[d.columns.size() - 1 - j].inside + 2;
    if (left < 0) break;
    edge = j + 1;
  }
  edge = std::max<std::size_t>(edge, 1);
  elide(d.columns, edge, Column{5, 3});
  for (auto& row : d.labels) elide(row, edge, std::string("..."));
}

std::string spaces(int n) { return std::string(static_cast<std::size_t>(std::max(n, 0)), ' '); }

void rule(std::string& out, const std::vector<Column>& columns, const char* left, const char* cross,
          const char* right) {
  out += left;
  for (std::size_t j = 0; j < columns.size(); ++j) {
    if (j > 0) out += cross;
    for (int k = 0; k < columns[j].inside; ++k) out += "─";
  }
  out += right;
  out += '\n';
}

int floor_half(int v) { return v >= 0 ? v / 2 : -((1 - v) / 2); }

std::string render(const Drawing& d) {
  std::string out;
  rule(out, d.columns, "┌", "┬", "┐");
  for (std::size_t i = 0; i < d.labels.size(); ++i) {
    if (i > 0) rule(out, d.columns, "├", "┼", "┤");
    // One line for the label, and the rest of the height above and below it.
    const int rest = d.heights[i] - 2;
    const int above = std::max(floor_half(rest), 0);
    const int below = std::max(rest - floor_half(rest), 0);
    for (int line = 0; line < above + 1 + below; ++line) {
      out += "│";
      for (std::size_t j = 0; j < d.columns.size(); ++j) {
        const std::string label = line == above ? d.labels[i][j] : std::string();
        const int size = static_cast<int>(label.size());
        // Centres the label in the cell's wanted width, and that width in the column.
        const int padding = std::max(d.columns[j].wanted - 2 - size, 0);
        const int excess = d.columns[j].inside - padding - size;
        const int before = padding / 2 + excess / 2;
        out += spaces(before) + label + spaces(d.columns[j].inside - before - size) + "│";
      }
      out += '\n';
    }
  }
  rule(out, d.columns, "└", "┴", "┘");
  return out;
}

}  // namespace

std::string draw_sharding(const Shape& shape, const std::vector<ShardBox>& boxes) {
  if (shape.size() != 1 && shape.size() != 2) {
    fail(shape, "it has rank " + std::to_string(shape.size()) +
                    ", and arrays of rank 1 or 2 can be drawn: reshape it, or print its shards");
  }
  if (boxes.empty()) fail(shape, "no device holds any of it");
  // A vector is drawn as one row.
  const bool matrix = shape.size() == 2;
  const auto row_of = [&](const ShardBox& b) { return matrix ? b.index[0] : Slice{0, 1}; };
  const auto column_of = [&](const ShardBox& b) { return b.index[matrix ? 1 : 0]; };
  const std::int64_t rows = matrix ? shape[0] : 1, width = shape[matrix ? 1 : 0];

  Cuts row_cuts, column_cuts;
  for (const ShardBox& b : boxes) {
    bool inside = b.index.size() == shape.size();
    for (std::size_t k = 0; inside && k < b.index.size(); ++k)
      inside = b.index[k].start >= 0 && b.index[k].start <= b.index[k].stop &&
               b.index[k].stop <= shape[k];
    if (!inside) {
      std::string given;
      for (const Slice& s : b.index) given += (given.empty() ? "" : ", ") + text_of(s);
      fail(shape, b.platform + " " + std::to_string(b.id) + " holds [" + given +
                      "], which does not lie in the shape");
    }
    row_cuts.add(row_of(b));
    column_cuts.add(column_of(b));
  }
  row_cuts.finish(shape, rows, 0);
  column_cuts.finish(shape, width, matrix ? 1 : 0);

  std::vector<std::vector<std::set<int>>> ids(row_cuts.count(),
                                              std::vector<std::set<int>>(column_cuts.count()));
  for (const ShardBox& b : boxes)
    ids[row_cuts.index_of(row_of(b))][column_cuts.index_of(column_of(b))].insert(b.id);

  Drawing d;
  const double aspect = static_cast<double>(matrix ? width : 1) /
                        static_cast<double>(std::max<std::int64_t>(shape[0], 1));
  const double base_width = std::min(static_cast<double>(kBaseHeight) * aspect, 1e6);
  for (std::size_t j = 0; j < column_cuts.count(); ++j) {
    const double share = column_cuts.share(j, width);
    const double w = share * static_cast<double>(static_cast<int>(base_width)) * kLinesToColumns;
    d.columns.push_back({std::clamp(static_cast<int>(w), kMinWidth, kMaxWidth), 0});
  }
  for (std::size_t i = 0; i < row_cuts.count(); ++i) {
    const double share = row_cuts.share(i, rows);
    d.heights.push_back(matrix ? static_cast<int>(share * kBaseHeight) : 1);
    std::vector<std::string> row;
    for (std::size_t j = 0; j < column_cuts.count(); ++j) {
      if (ids[i][j].empty()) {
        fail(shape, "no device holds part " + std::to_string(i) + ", " + std::to_string(j) +
                        " of the grid that the others make");
      }
      row.push_back(boxes.front().platform + " " + id_list(ids[i][j]));
    }
    d.labels.push_back(std::move(row));
  }
  fit(d);
  return render(d);
}

}  // namespace shmap::debug
