//go:build vm

package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"testing"
	"time"
)

// The whole NIC on this kernel: four workers' gradients over AF_XDP, every element right, every frame accounted for.
func TestDemo(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "/gradnic", "demo", "--json", "--workers=4", "--iters=1")
	c.Dir = "/tmp"
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	var got struct {
		OK        bool   `json:"ok"`
		Wrong     *int   `json:"wrong"`
		Workers   int    `json:"workers"`
		Transport string `json:"transport"`
	}
	if jsonErr := json.Unmarshal(out, &got); err != nil || jsonErr != nil {
		t.Fatalf("gradnic demo: %v, %v\n%s%s", err, jsonErr, out, stderr.Bytes())
	}
	if !got.OK || got.Wrong == nil || *got.Wrong != 0 || got.Workers != 4 || got.Transport != "xdp-native" {
		t.Errorf("gradnic demo: %s%s", out, stderr.Bytes())
	}
	fmt.Printf("AF_XDP demo: %s, %d workers\n", got.Transport, got.Workers)
}
