package demo

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func TestCodecs(t *testing.T) {
	transports := []Transport{Mem}
	if os.Geteuid() == 0 {
		transports = append(transports, XDP)
	}
	for _, transport := range transports {
		names := []string{"none", "bfp16", "topk", "qsgd", "mxfp4"}
		r, err := RunCodecs(t.Context(), Options{Workers: 3, Transport: transport, Root: os.Geteuid() == 0, Loss: 0.01}, names, 2)
		if err != nil {
			t.Fatal(err)
		}
		if !r.OK || len(r.Rows) != 2*len(names) || r.NIC.Results == 0 {
			t.Fatalf("%+v", r)
		}
		for _, row := range r.Rows {
			limit := map[string]float64{"none": 1e-12, "bfp16": 3e-4, "qsgd": 0.02, "mxfp4": 0.05, "topk": 1}[row.Codec]
			if row.Wrong != 0 || row.Differing != 0 || row.Loss > limit || row.Ratio < 3.5 && row.Codec != "none" {
				t.Errorf("%+v", row)
			}
		}
		var table bytes.Buffer
		if err := r.Table(&table); err != nil || strings.Count(table.String(), "ranked") != len(names) {
			t.Errorf("%v\n%s", err, &table)
		}
	}
	if _, err := ParseCodecs("bfp16,zip"); err == nil {
		t.Error("zip is no codec")
	}
}
