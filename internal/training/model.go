package training

import (
	"math"
	"math/rand/v2"
)

// Size is the shape of a model.
type Size struct {
	Embed, Hidden int
	// Steps is the characters of a sequence, Batch the sequences of a worker's step.
	Steps, Batch int
}

// DefaultSize is small enough for 1600 gradients in a minute, and large enough to learn something.
var DefaultSize = Size{Embed: 32, Hidden: 96, Steps: 32, Batch: 8}

// Vocabulary is the number of characters: ASCII.
const Vocabulary = 128

// model is the parameters or the gradients of a model: views of one array.
type model struct {
	Size
	flat   []float32
	embed  []float32 // [Vocabulary][Embed]
	wi, wh []float32 // [3*Hidden][Embed], [3*Hidden][Hidden]: reset, update, new
	bi, bh []float32
	wo, bo []float32 // [Vocabulary][Hidden]
}

// Parameters is how many there are.
func (s Size) Parameters() int {
	return Vocabulary*s.Embed + 3*s.Hidden*(s.Embed+s.Hidden+2) + Vocabulary*(s.Hidden+1)
}

func newModel(s Size) *model {
	m := &model{Size: s, flat: make([]float32, s.Parameters())}
	rest := m.flat
	for _, f := range []struct {
		to *[]float32
		n  int
	}{
		{&m.embed, Vocabulary * s.Embed}, {&m.wi, 3 * s.Hidden * s.Embed}, {&m.wh, 3 * s.Hidden * s.Hidden}, {&m.bi, 3 * s.Hidden}, {&m.bh, 3 * s.Hidden},
		{&m.wo, Vocabulary * s.Hidden}, {&m.bo, Vocabulary},
	} {
		*f.to, rest = rest[:f.n:f.n], rest[f.n:]
	}
	return m
}

// initialise draws the parameters: the embedding from a normal distribution, the rest uniformly within 1/sqrt(Hidden).
func (m *model) initialise(seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range m.embed {
		m.embed[i] = float32(r.NormFloat64())
	}
	bound := 1 / math.Sqrt(float64(m.Hidden))
	for _, p := range [][]float32{m.wi, m.wh, m.bi, m.bh, m.wo, m.bo} {
		for i := range p {
			p[i] = float32((2*r.Float64() - 1) * bound)
		}
	}
}

// tape is what the forward pass leaves for the backward one, by step and sequence.
type tape struct {
	x       []byte    // [Steps][Batch] characters
	h       []float32 // [Steps+1][Batch][Hidden]
	r, z, n []float32 // [Steps][Batch][Hidden]
	hn      []float32 // the new gate's part of the hidden state, before the reset gate
	p       []float32 // [Steps][Batch][Vocabulary] probabilities

	gi, gh     []float32 // [3*Hidden], scratch
	dh, next   []float32 // [Batch][Hidden]
	da, dlogit []float32
}

func newTape(s Size) *tape {
	n := s.Steps * s.Batch
	return &tape{
		x: make([]byte, n), h: make([]float32, (n+s.Batch)*s.Hidden), r: make([]float32, n*s.Hidden), z: make([]float32, n*s.Hidden),
		n: make([]float32, n*s.Hidden), hn: make([]float32, n*s.Hidden), p: make([]float32, n*Vocabulary),
		gi: make([]float32, 3*s.Hidden), gh: make([]float32, 3*s.Hidden), dh: make([]float32, s.Batch*s.Hidden), next: make([]float32, s.Batch*s.Hidden),
		da: make([]float32, 3*s.Hidden), dlogit: make([]float32, Vocabulary),
	}
}

// forward computes the mean loss of a batch, in nats a character: text[at[b]:] are Steps characters and the one after.
func (m *model) forward(t *tape, text []byte, at []int) float64 {
	H, loss := m.Hidden, 0.0
	clear(t.h[:m.Batch*H])
	for s := range m.Steps {
		for b := range m.Batch {
			i := s*m.Batch + b
			c := text[at[b]+s]
			t.x[i] = c
			h, out := t.h[i*H:(i+1)*H], t.h[(i+m.Batch)*H:(i+m.Batch+1)*H]
			linear(t.gi, m.wi, m.bi, m.embed[int(c)*m.Embed:(int(c)+1)*m.Embed])
			linear(t.gh, m.wh, m.bh, h)
			r, z, n, hn := t.r[i*H:(i+1)*H], t.z[i*H:(i+1)*H], t.n[i*H:(i+1)*H], t.hn[i*H:(i+1)*H]
			for k := range H {
				r[k] = sigmoid(t.gi[k] + t.gh[k])
				z[k] = sigmoid(t.gi[H+k] + t.gh[H+k])
				hn[k] = t.gh[2*H+k]
				n[k] = float32(math.Tanh(float64(t.gi[2*H+k] + r[k]*hn[k])))
				out[k] = (1-z[k])*n[k] + z[k]*h[k]
			}
			p := t.p[i*Vocabulary : (i+1)*Vocabulary]
			linear(p, m.wo, m.bo, out)
			loss += softmax(p, text[at[b]+s+1])
		}
	}
	return loss / float64(m.Steps*m.Batch)
}

// backward adds the gradient of the mean loss to g.
func (m *model) backward(t *tape, g *model, text []byte, at []int) {
	H := m.Hidden
	scale := 1 / float32(m.Steps*m.Batch)
	clear(t.dh)
	for s := m.Steps - 1; s >= 0; s-- {
		clear(t.next)
		for b := range m.Batch {
			i := s*m.Batch + b
			h, out := t.h[i*H:(i+1)*H], t.h[(i+m.Batch)*H:(i+m.Batch+1)*H]
			d := t.dh[b*H : (b+1)*H]
			copy(t.dlogit, t.p[i*Vocabulary:(i+1)*Vocabulary])
			t.dlogit[text[at[b]+s+1]]--
			for k := range t.dlogit {
				t.dlogit[k] *= scale
			}
			linearBack(d, g.wo, g.bo, m.wo, out, t.dlogit)
			r, z, n, hn := t.r[i*H:(i+1)*H], t.z[i*H:(i+1)*H], t.n[i*H:(i+1)*H], t.hn[i*H:(i+1)*H]
			prev := t.next[b*H : (b+1)*H]
			// da is the gradient of what goes into the gates from the input; from the hidden state only the new gate's differs.
			for k := range H {
				dn := d[k] * (1 - z[k]) * (1 - n[k]*n[k])
				t.da[k] = dn * hn[k] * r[k] * (1 - r[k])
				t.da[H+k] = d[k] * (h[k] - n[k]) * z[k] * (1 - z[k])
				t.da[2*H+k] = dn
				prev[k] += d[k] * z[k]
			}
			c := int(t.x[i])
			linearBack(g.embed[c*m.Embed:(c+1)*m.Embed], g.wi, g.bi, m.wi, m.embed[c*m.Embed:(c+1)*m.Embed], t.da)
			for k := range H {
				t.da[2*H+k] *= r[k]
			}
			linearBack(prev, g.wh, g.bh, m.wh, h, t.da)
		}
		t.dh, t.next = t.next, t.dh
	}
}

func sigmoid(x float32) float32 { return float32(1 / (1 + math.Exp(-float64(x)))) }

// softmax makes probabilities of logits and returns the loss for the character that came.
func softmax(p []float32, target byte) float64 {
	top := p[0]
	for _, v := range p {
		top = max(top, v)
	}
	sum := 0.0
	for i, v := range p {
		e := math.Exp(float64(v - top))
		p[i] = float32(e)
		sum += e
	}
	inv := float32(1 / sum)
	for i := range p {
		p[i] *= inv
	}
	return -math.Log(math.Max(float64(p[target]), 1e-30))
}

// linear is y = w x + b, with a row of w for each element of y.
func linear(y, w, b, x []float32) {
	n := len(x)
	for i := range y {
		row := w[i*n : (i+1)*n]
		var s0, s1, s2, s3 float32
		k := 0
		for ; k+4 <= len(x) && k+4 <= len(row); k += 4 {
			s0 += row[k] * x[k]
			s1 += row[k+1] * x[k+1]
			s2 += row[k+2] * x[k+2]
			s3 += row[k+3] * x[k+3]
		}
		for ; k < n; k++ {
			s0 += row[k] * x[k]
		}
		y[i] = b[i] + (s0 + s1) + (s2 + s3)
	}
}

// linearBack adds the gradients of linear: of x to dx, of w to dw, of b to db.
func linearBack(dx, dw, db, w, x, dy []float32) {
	n := len(x)
	for i, d := range dy {
		if d == 0 {
			continue
		}
		db[i] += d
		row, grad := w[i*n:(i+1)*n], dw[i*n:(i+1)*n]
		for k, v := range x {
			dx[k] += d * row[k]
			grad[k] += d * v
		}
	}
}
