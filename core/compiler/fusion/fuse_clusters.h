// Decides which equations of a jaxpr become one fused equation.
#pragma once
#include <span>
#include <unordered_set>
#include <vector>

#include "core/compiler/fusion/fuse_rules.h"
#include "core/compiler/passes/program_index.h"

namespace shmap {

struct FuseMember {
  int eqn;
  FusedKind kind;     // of its result
  bool copy = false;  // the cluster has a copy of the equation, which stays for other users
};

// Equations of one space that become one equation.
struct FuseCluster {
  std::vector<FuseMember> members;
  // For each value that members read and no member computes: a bit for each FusedKind as which they
  // read it, and one more if its rows repeat. No member can compute a value that repeats.
  VarMap<std::uint32_t> needs;
  // Equations that define operands of members: at least one of each cluster, and every one that is
  // in no cluster.
  std::vector<int> makers;
  // whether rows and columns matter; otherwise all values are full or scalar, in one row
  bool split = false;
  bool draws = false;  // whether a member draws random bits, which are full values in any space
  FuseSpace space;
  AxisSet axes;
  int ops = 0;  // the number of members, without reshapes
  int merged_into = -1;
  int first = 0;     // the first equation that is a member and no copy
  int earliest = 0;  // no equation before this one depends on a member; see FuseClusters::lower
};

// Visits equations from the last to the first. An equation joins a cluster that uses its result,
// where that makes no cycle.
class FuseClusters {
 public:
  // `jaxpr` must outlive this object.
  explicit FuseClusters(const Jaxpr& jaxpr);

  const std::vector<FuseCluster>& all() const { return clusters_; }
  FuseRole role(int i) const { return roles_[static_cast<std::size_t>(i)]; }
  // How member m of cluster x reads operand a.
  FuseRead read_of(const FuseCluster& x, const FuseMember& m, const Atom& a) const;
  // Whether only the member's own cluster uses its result.
  bool is_inner(int i) const {
    return !users_of(result(i)).empty() && used_by_alone(i, cluster_of(i));
  }
  const ProgramIndex& program() const { return program_; }
  // Whether equation i is a broadcast, a reshape or a draw of random bits of which clusters have
  // copies of their own.
  bool is_copied(int i) const { return copied_.count(i) != 0; }
  // Whether the equation is a collective or has an effect; these keep their order.
  static bool is_ordered(const Eqn& eqn) { return eqn.primitive->group || has_effect(eqn); }

 private:
  const Eqn& eqn(int i) const { return program_.eqn(i); }
  const Var* result(int i) const { return eqn(i).out[0].get(); }
  FuseCluster& cluster(int c) { return clusters_[static_cast<std::size_t>(c)]; }
  int cluster_of(int i) const;  // the cluster of an equation, or -1
  std::vector<int>& users_of(const Var* v) {
    return users_[static_cast<std::size_t>(program_.number(v))];
  }
  const std::vector<int>& users_of(const Var* v) const {
    return users_[static_cast<std::size_t>(program_.number(v))];
  }
  bool used_by_alone(int i, int c) const;  // whether only cluster c uses i's result
  bool is_sent(int i) const;
  bool is_sent(const FuseCluster& x) const;
  int result_count_of(const FuseCluster& x) const;

  void find_users();
  void find_drawn();
  bool is_drawn_again(int i, const std::vector<int>& candidates);
  void visit(int i);
  void begin(int i);
  bool join(int i, int c);
  void absorb_copies(int i);
  void absorb_draw(int i);
  bool absorb_copy(int i, int c);
  bool unite(int a, int b, const Var* v);
  bool agree(const FuseCluster& x, bool x_rows, const FuseCluster& y, bool y_rows) const;
  void add_member(int c, FuseMember m);
  bool needed_kind(int c, const Var* v, FusedKind* kind);
  bool may_take(int c, int i, FusedKind* kind);
  void set_space(int c, const FuseSpace& space, bool as_rows);
  void find_needs(FuseCluster& x);
  bool may_change_space(const FuseCluster& x) const;
  bool all_read_in(const FuseCluster& x, const FuseSpace& space, bool as_rows) const;
  bool make_readable(int c, int i, FusedKind kind);

  bool leads_around(int i, int c);
  bool reaches(int from, int to);
  bool reach_each_other(const std::vector<int>& clusters);
  bool search(std::vector<int> from, std::span<const int> clusters);
  void push_successors(int i, std::vector<int>* out) const;
  int& earliest(int node);
  void merge_makers(int c);
  void lower(int node, int to);

  const ProgramIndex program_;
  // For each value, by its number: the equations that use it. A cluster with a copy of the value's
  // user counts through one of its members.
  std::vector<std::vector<int>> users_;
  std::vector<FuseRole> roles_;
  // for a value that is cheap to draw again: the number of equations to compute it; 0 for others
  std::vector<int> drawn_;
  // For each equation: the next and the previous equation that is_ordered, or -1; those that are
  // not ordered have none.
  std::vector<int> next_ordered_, previous_ordered_;
  int visited_ = 0;                  // the equation that is visited; all later ones have been
  std::vector<int> earliest_alone_;  // FuseCluster::earliest of equations in no cluster
  std::vector<int> cluster_of_;
  std::vector<FuseCluster> clusters_;
  std::unordered_set<int> copied_;
};

}  // namespace shmap
