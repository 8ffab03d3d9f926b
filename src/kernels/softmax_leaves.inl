// The running softmax of a tile, and what statistics of rows need of its scores and weights. Included by leaves.inl, before its table; same
// rules.

/// `spread` is summed up with it where WithSpread says so.
template <int V, bool WithSpread>
[[gnu::always_inline]] inline void exp_and_sum(float* scores, Index ld, Index keys, const F32* max, F32* sum, F32* spread) {
#pragma GCC unroll 2
  for (Index k = 0; k < keys; ++k) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      float* at = scores + k * ld + v * kLanes;
      const F32 x = Isa::sub(Isa::load(at), max[v]);
      const F32 weight = exp_nonpositive(x);
      Isa::store(at, weight);
      sum[v] = Isa::add(sum[v], weight);
      // Bounded where the weight is 0 anyway, or hidden keys would add 0 times infinity; in this order a NaN stays.
      if constexpr (WithSpread) spread[v] = Isa::fma(weight, Isa::max(Isa::set(-88.0F), x), spread[v]);
    }
  }
}

template <int V, bool WithSpread>
[[gnu::always_inline]] inline bool softmax_update_of(float* scores, Index ld, const Strip* strips, int strip_count, const float* tile_max,
                                                     RowState state) {
  F32 max[V];
  F32 sum[V];
  F32 spread[V];
  F32 alpha[V];
  bool grown = false;
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
    const F32 old = Isa::load(state.max + v * kLanes);
    const F32 top = Isa::max(Isa::load(tile_max + v * kLanes), old);
    grown |= Isa::any_differs(top, old);
    Isa::store(state.max + v * kLanes, top);
    max[v] = subtractable(top);
    alpha[v] = exp_nonpositive(Isa::sub(old, max[v]));
    // A lane whose maximum stands keeps exactly what it has: alpha 1 (the polynomial's value at 0 is 1 - 6e-8), or NaN where NaN.
    alpha[v] = Isa::where_equal(top, old, Isa::set(1.0F), alpha[v]);
    sum[v] = Isa::set(0.0F);
    spread[v] = Isa::set(0.0F);
  }
  for (int s = 0; s < strip_count; ++s) {
    const Strip strip = strips[s];
    float* at = scores + strip.key * ld;
    if (strip.vectors == V) {
      exp_and_sum<V, WithSpread>(at, ld, strip.count, max, sum, spread);
    } else {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        if (v >= strip.first_vector && v < strip.first_vector + strip.vectors) {
          exp_and_sum<1, WithSpread>(at + v * kLanes, ld, strip.count, max + v, sum + v, spread + v);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
    Isa::store(state.alpha + v * kLanes, alpha[v]);
    Isa::store(state.sum + v * kLanes, Isa::fma(Isa::load(state.sum + v * kLanes), alpha[v], sum[v]));
    if constexpr (WithSpread) {
      Isa::store(state.spread + v * kLanes, spread[v]);
      Isa::store(state.weight + v * kLanes, sum[v]);
    }
  }
  return grown;
}

bool softmax_update(float* scores, Index ld, int vectors, const Strip* strips, int strip_count, const float* tile_max, RowState state) {
  bool grown = false;
  for_vectors(vectors, [&](auto n) {
    constexpr int V = decltype(n)::value;
    grown = state.spread != nullptr ? softmax_update_of<V, true>(scores, ld, strips, strip_count, tile_max, state)
                                    : softmax_update_of<V, false>(scores, ld, strips, strip_count, tile_max, state);
  });
  return grown;
}

void exp_minus(float* scores, Index ld, int vectors, Index keys, const float* max) {
  const F32 highest = Isa::set(88.0F);  // a caller's lse may be anything: stay inside what exp_nonpositive can do
  for (int v = 0; v < vectors; ++v) {
    const F32 top = subtractable(Isa::load(max + v * kLanes));
    for (Index k = 0; k < keys; ++k) {
      float* at = scores + k * ld + v * kLanes;
      const F32 score = Isa::load(at);
      // What is hidden weighs 0 in a row whose lse is NaN too.
      Isa::store(at, Isa::where_neg_inf(score, Isa::set(0.0F), exp_nonpositive(Isa::min(highest, Isa::sub(score, top)))));
    }
  }
}

void add_vectors(const float* weights, Index ld, int vectors, Index keys, float* sums) {
  for_vectors(vectors, [&](auto n) {
    constexpr int V = decltype(n)::value;
    for (Index k = 0; k < keys; ++k) {
      F32 sum = Isa::load(sums + k * kLanes);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum = Isa::add(sum, Isa::load(weights + k * ld + v * kLanes));
      Isa::store(sums + k * kLanes, sum);
    }
  });
}

void sum_and_max(const float* weights, Index ld, int vectors, Index keys, float* sum, float* max) {
  for_vectors(vectors, [&](auto n) {
    constexpr int V = decltype(n)::value;
    F32 total[V];
    F32 top[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) total[v] = top[v] = Isa::set(0.0F);
    for (Index k = 0; k < keys; ++k) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        const F32 weight = Isa::load(weights + k * ld + v * kLanes);
        total[v] = Isa::add(total[v], weight);
        top[v] = Isa::max(weight, top[v]);
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      Isa::store(sum + v * kLanes, total[v]);
      Isa::store(max + v * kLanes, top[v]);
    }
  });
}

void first_equal(const float* scores, Index ld, Index keys, const float* value, float* key) {
  const F32 wanted = Isa::load(value);
  const F32 one = Isa::set(1.0F);
  F32 found = Isa::load(key);
  F32 at = Isa::set(static_cast<float>(keys));
#pragma GCC unroll 4
  for (Index k = keys - 1; k >= 0; --k) {
    at = Isa::sub(at, one);
    found = Isa::where_equal(Isa::load(scores + k * ld), wanted, at, found);
  }
  Isa::store(key, found);
}

template <int V>
[[gnu::always_inline]] inline void add_moments_of(const float* weights, Index ld, Index keys, Moments to) {
  const F32 one = Isa::set(1.0F);
  F32 place[V];  // of the key, from `from` on
  F32 distance[V];
  F32 square[V];
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
    place[v] = Isa::sub(Isa::set(to.key), Isa::load(to.from + v * kLanes));
    distance[v] = Isa::load(to.distance + v * kLanes);
    square[v] = Isa::load(to.square + v * kLanes);
  }
  for (Index k = 0; k < keys; ++k) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const F32 weight = Isa::load(weights + k * ld + v * kLanes);
      const F32 away = Isa::magnitude(place[v]);
      distance[v] = Isa::fma(weight, away, distance[v]);
      square[v] = Isa::fma(Isa::mul(weight, away), away, square[v]);
      place[v] = Isa::add(place[v], one);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
    Isa::store(to.distance + v * kLanes, distance[v]);
    Isa::store(to.square + v * kLanes, square[v]);
  }
}

void add_moments(const float* weights, Index ld, int vectors, Index keys, Moments to) {
  for_vectors(vectors, [&](auto n) { add_moments_of<decltype(n)::value>(weights, ld, keys, to); });
}
