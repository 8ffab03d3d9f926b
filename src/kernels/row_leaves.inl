// Leaves on rows of numbers between the products: activations. Included by leaves.inl; same rules.

/// x Phi(x) through the lower tail Q(m) = Phi(-m), m = |x|: Q = exp(-m^2 / 2) t P(t), t = 1 / (1 + 0.28 m), P of degree 9 (least squares,
/// reweighted towards equal ripples, on the relative error up to m = 13.5, where exp(-m^2 / 2) leaves the normal numbers; 2e-8).
[[gnu::always_inline]] inline F32 gelu_of(F32 x) {
  const F32 zero = Isa::set(0.0F);
  const F32 magnitude = Isa::min(Isa::set(40.0F), Isa::max(Isa::sub(zero, x), x));  // in this order a NaN stays
  const F32 t = Isa::div(Isa::set(1.0F), Isa::fma(magnitude, Isa::set(0.28F), Isa::set(1.0F)));
  F32 p = Isa::set(-0.0134667475F);
  p = Isa::fma(p, t, Isa::set(0.094473906F));
  p = Isa::fma(p, t, Isa::set(-0.24820039F));
  p = Isa::fma(p, t, Isa::set(0.28420323F));
  p = Isa::fma(p, t, Isa::set(-0.15264022F));
  p = Isa::fma(p, t, Isa::set(0.14358093F));
  p = Isa::fma(p, t, Isa::set(0.061885044F));
  p = Isa::fma(p, t, Isa::set(0.10716835F));
  p = Isa::fma(p, t, Isa::set(0.11127302F));
  p = Isa::fma(p, t, Isa::set(0.11172289F));
  const F32 exponential = exp_nonpositive(Isa::mul(Isa::mul(magnitude, magnitude), Isa::set(-0.5F)));
  const F32 tail = Isa::mul(magnitude, Isa::mul(exponential, Isa::mul(t, p)));  // m Phi(-m)
  return Isa::where_less(x, zero, Isa::sub(zero, tail), Isa::sub(x, tail));
}

void gelu(float* x, Index count) {
  Index i = 0;
  for (; i + kLanes <= count; i += kLanes) Isa::store(x + i, gelu_of(Isa::load(x + i)));
  if (i < count) Isa::store_n(x + i, gelu_of(Isa::load_n(x + i, static_cast<int>(count - i))), static_cast<int>(count - i));
}
