package main

import (
	"fmt"
	"strings"

	"gradnic/bench/report"
	"gradnic/codec"
)

// column is a way at a vector level.
type column struct{ title, way, level string }

var (
	wide    = []column{{"encode, AVX2", "encode", "avx2"}, {"decode, AVX2", "decode", "avx2"}, {"encode, AVX-512", "encode", "avx512"}, {"decode, AVX-512", "decode", "avx512"}}
	pureToo = append(wide[:4:4], column{"encode, pure Go", "encode", "off"})
)

// tables are the rows that docs/codecs.md shows: of an array beyond the caches with the ratio to copy and what bounds the encoder,
// and of a slice within them. What a machine did not measure is a dash; rows that miss a goal, or do not count, follow.
func tables(r *report.Report) string {
	rows := r.ByName()
	var b strings.Builder
	b.WriteString(r.Made())
	const far = 1 << 20
	head(&b, "1 Mi elements, GB/s (ratio to copy):", wide, " bound by (encode, AVX2) |", "---|")
	for _, c := range codec.All() {
		name := c.Info().Name
		fmt.Fprintf(&b, "| %s |", name)
		for _, col := range wide {
			cell(&b, rows, fmt.Sprintf("%s/%s/%d/%s", name, col.way, far, col.level), true)
		}
		fmt.Fprintf(&b, " %s |\n", rows[fmt.Sprintf("%s/encode/%d/avx2", name, far)].Bound)
	}
	head(&b, fmt.Sprintf("%d elements, GB/s:", nearElements), pureToo, "", "")
	for _, c := range codec.All() {
		name := c.Info().Name
		fmt.Fprintf(&b, "| %s |", name)
		for _, col := range pureToo {
			cell(&b, rows, fmt.Sprintf("%s/%s/%d/%s", name, col.way, nearElements, col.level), false)
		}
		b.WriteString("\n")
	}
	first := "\nShort of a goal, or not to be trusted: "
	for _, row := range r.Rows {
		invalid := strings.Contains(row.Note, "INVALID")
		if short := row.Goal > 0 && row.Ratio < row.Goal && !strings.Contains(row.Note, "reaches") || strings.Contains(row.Note, "misses"); short || invalid {
			fmt.Fprintf(&b, "%s`%s` (%.3g GB/s, %.2f of copy%s)", first, row.Name, row.Value, row.Ratio, strings.TrimSuffix("; "+row.Note, "; "))
			first = ", "
		}
	}
	if first == ", " {
		b.WriteString(".\n")
	}
	return b.String()
}

func head(b *strings.Builder, title string, columns []column, more, line string) {
	fmt.Fprintf(b, "\n%s\n\n| codec |", title)
	for _, c := range columns {
		fmt.Fprintf(b, " %s |", c.title)
	}
	fmt.Fprintf(b, "%s\n|---|%s%s\n", more, strings.Repeat("---:|", len(columns)), line)
}

func cell(b *strings.Builder, rows map[string]report.Row, name string, ratio bool) {
	row, ok := rows[name]
	switch {
	case !ok:
		b.WriteString(" - |")
	case ratio:
		fmt.Fprintf(b, " %.3g (%.2g) |", row.Value, row.Ratio)
	default:
		fmt.Fprintf(b, " %.3g |", row.Value)
	}
}
