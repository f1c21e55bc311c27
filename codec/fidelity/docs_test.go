package fidelity

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"gradnic/codec"
	"gradnic/internal/gradients"
)

// The table of docs/codecs.md is what the tool prints.
func TestTableOfTheDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/codecs.md")
	if err != nil {
		t.Fatal(err)
	}
	x, err := gradients.Load(0)
	if err != nil {
		t.Fatal(err)
	}
	rs, err := Evaluate(x, codec.All(), Options{Seed: 1, Repeats: -1})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		row := fmt.Sprintf("| %s | %.3f | %.3g | %.3g | %.2f | %+.2g | %.7f |", r.Codec, r.Ratio, r.NMSE, r.MaxError, r.Share, r.RelativeBias, r.Cosine)
		if !strings.Contains(string(page), row+"\n") {
			t.Errorf("docs/codecs.md does not have %s", row)
		}
	}
}
