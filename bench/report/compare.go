package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
)

// Read reads a report that WriteFile wrote. Documents of schema 1 have no samples, so they compare without confidence.
func Read(path string) (*Report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("report: %s: %w", path, err)
	}
	if r.Schema < 1 || r.Schema > Schema {
		return nil, fmt.Errorf("report: %s: schema %d: this program reads 1 to %d", path, r.Schema, Schema)
	}
	return &r, nil
}

// significant is the probability below which a difference is taken for real.
const significant = 0.05

// Difference is one row of two reports.
type Difference struct {
	Name     string  `json:"name"`
	Unit     string  `json:"unit"`
	Before   float64 `json:"before"` // median of the quantity that counts
	After    float64 `json:"after"`
	Change   float64 `json:"change"`   // After/Before - 1
	P        float64 `json:"p"`        // of the samples, or more different ones, if nothing had changed; 1 when that cannot be told
	N        int     `json:"n"`        // samples before
	M        int     `json:"m"`        // and after
	Real     bool    `json:"real"`     // P is below 0.05
	Relative bool    `json:"relative"` // the quantity is a ratio to the row's yardstick
	// Invalid says that one of the figures, or both, is not to be trusted; then Real is false.
	Invalid bool `json:"invalid,omitempty"`
}

// Compare finds the rows that two reports have in common, and tells for each whether it changed, by the Mann-Whitney U
// test, which asks nothing of the distribution. With fewer than four samples on a side nothing can be told apart.
func Compare(before, after *Report) (rows []Difference, missing []string) {
	type key struct{ name, unit, against string }
	old := map[key]Row{}
	for _, r := range before.Rows {
		old[key{r.Name, r.Unit, r.Against}] = r
	}
	for _, r := range after.Rows {
		k := key{r.Name, r.Unit, r.Against}
		o, ok := old[k]
		if !ok {
			missing = append(missing, r.Name+" (new)")
			continue
		}
		delete(old, k)
		d := Difference{Name: r.Name, Unit: r.Unit, Before: o.Value, After: r.Value, N: len(o.Samples), M: len(r.Samples), P: 1}
		if r.Against != "" {
			d.Relative, d.Unit, d.Before, d.After = true, "x of "+r.Against, o.Ratio, r.Ratio
		}
		if d.Before != 0 {
			d.Change = d.After/d.Before - 1
		}
		d.P = MannWhitney(o.Samples, r.Samples)
		d.Invalid = o.Invalid() || r.Invalid()
		d.Real = d.P < significant && !d.Invalid
		rows = append(rows, d)
	}
	for k := range old {
		missing = append(missing, k.name+" (gone)")
	}
	slices.Sort(missing)
	return rows, missing
}

// WriteComparison writes the differences as a table.
func WriteComparison(w io.Writer, rows []Difference, missing []string) error {
	var b strings.Builder
	b.WriteString("| row | unit | before | after | change | confidence |\n|---|---|---:|---:|---:|---|\n")
	for _, d := range rows {
		change := "~"
		if d.Real {
			change = fmt.Sprintf("%+.1f %%", 100*d.Change)
		}
		confidence := fmt.Sprintf("p=%.3f n=%d+%d", d.P, d.N, d.M)
		if min(d.N, d.M) < 4 {
			confidence = fmt.Sprintf("too few samples (%d+%d): at least 4 each", d.N, d.M)
		}
		if d.Invalid {
			confidence = "INVALID in one of them or both"
		}
		fmt.Fprintf(&b, "| %s | %s | %.4g | %.4g | %s | %s |\n", d.Name, d.Unit, d.Before, d.After, change, confidence)
	}
	for _, m := range missing {
		fmt.Fprintf(&b, "| %s | | | | | |\n", m)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// MannWhitney is the two-sided p-value of the Mann-Whitney U test: how likely samples at least as different would be if
// both came from one distribution. It is exact for up to 20 samples a side without ties, else the normal approximation
// with corrections for ties and continuity (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 4.1).
// Fewer than one sample on a side give 1.
func MannWhitney(a, b []float64) float64 {
	n, m := len(a), len(b)
	if n == 0 || m == 0 {
		return 1
	}
	type value struct {
		v     float64
		first bool
	}
	all := make([]value, 0, n+m)
	for _, v := range a {
		all = append(all, value{v, true})
	}
	for _, v := range b {
		all = append(all, value{v, false})
	}
	slices.SortFunc(all, func(x, y value) int {
		switch {
		case x.v < y.v:
			return -1
		case x.v > y.v:
			return 1
		}
		return 0
	})
	var ranks, ties float64
	for i := 0; i < len(all); {
		j := i
		for j < len(all) && all[j].v == all[i].v {
			j++
		}
		t := float64(j - i)
		ties += t*t*t - t
		for _, x := range all[i:j] {
			if x.first {
				ranks += float64(i+j+1) / 2 // the mean of ranks i+1 to j
			}
		}
		i = j
	}
	u := ranks - float64(n*(n+1))/2
	u = math.Min(u, float64(n*m)-u)
	if ties == 0 && n <= 20 && m <= 20 {
		return math.Min(1, 2*exactBelow(n, m, int(u)))
	}
	total := float64(n + m)
	variance := float64(n*m) / 12 * (total + 1 - ties/(total*(total-1)))
	if variance <= 0 {
		return 1 // all values are the same
	}
	z := (float64(n*m)/2 - u - 0.5) / math.Sqrt(variance)
	return math.Min(1, math.Erfc(math.Max(z, 0)/math.Sqrt2))
}

// exactBelow is the probability that U of n and m samples is at most u: the share of orders, counted by the place of the
// largest sample.
func exactBelow(n, m, u int) float64 {
	// ways[i][j][k]: orders of i and j samples with U = k.
	ways := make([][][]float64, n+1)
	for i := range ways {
		ways[i] = make([][]float64, m+1)
		for j := range ways[i] {
			ways[i][j] = make([]float64, n*m+1)
			if i == 0 || j == 0 {
				ways[i][j][0] = 1
				continue
			}
			for k := range ways[i][j] {
				ways[i][j][k] = ways[i][j-1][k]
				if k >= j {
					ways[i][j][k] += ways[i-1][j][k-j]
				}
			}
		}
	}
	var below, all float64
	for k, w := range ways[n][m] {
		all += w
		if k <= u {
			below += w
		}
	}
	return below / all
}
