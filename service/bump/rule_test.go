package bump

import (
	"strings"
	"testing"
)

func TestParseRule(t *testing.T) {
	for text, want := range map[string]string{
		"udp dport=9000 offset=16 type=float32 codec=bfp16":                               "",
		"udp  codec=bfp16 type=float32   offset=0 dport=9000-9015":                        "udp dport=9000-9015 offset=0 type=float32 codec=bfp16",
		"udp src=10.0.0.7/24 dst=10.0.1.7 sport=5 dport=6 offset=8 type=float16 codec=@3": "udp src=10.0.0.0/24 dst=10.0.1.7/32 sport=5 dport=6 offset=8 type=float16 codec=@3",
		"tcp dport=5001 codec=lossless":                                                   "tcp dport=5001 type=word32 codec=lossless",
		"tcp type=word16 order=big codec=lossless":                                        "",
		"udp codec=lossless":                                                              "udp offset=0 type=word32 codec=lossless",
		"udp offset=4 type=bfloat16 order=big codec=topk:0.1":                             "",
		"udp dport=53 codec=raw":                                                          "",
	} {
		r, err := ParseRule(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if want == "" {
			want = text
		}
		if got := r.String(); got != want {
			t.Errorf("%s: as text %q, want %q", text, got, want)
		}
		if again, err := ParseRule(r.String()); err != nil || again.String() != r.String() {
			t.Errorf("%s: does not read what it has written: %v", text, err)
		}
	}
}

func TestRuleRefused(t *testing.T) {
	for text, say := range map[string]string{
		"":                                          "it is empty",
		"icmp codec=raw":                            "starts with udp or tcp",
		"udp dport=9000":                            "codec is missing",
		"udp dport=9000 codec=bfp16":                "needs offset=BYTES and type=TYPE",
		"udp offset=0 codec=bfp16":                  "needs offset=BYTES and type=TYPE",
		"udp offset=0 type=word32 codec=bfp16":      "no value that a lossy codec",
		"tcp offset=0 type=float32 codec=bfp16":     "can only be lossless",
		"tcp offset=4 codec=lossless":               "an offset in its segments",
		"tcp offset=4 type=float32 codec=@1":        "can only be lossless",
		"udp offset=4 type=float32 codec=@4":        "lies before the elements",
		"udp offset=0 type=float32 codec=none":      "write codec=raw",
		"udp offset=0 type=float32 codec=nope":      "unknown codec",
		"udp offset=0 type=float99 codec=bfp16":     "element type",
		"udp dport=0 codec=raw":                     "write PORT or FIRST-LAST",
		"udp dport=9-8 codec=raw":                   "write PORT or FIRST-LAST",
		"udp src=fd00::1 codec=raw":                 "IPv4 address",
		"udp order=middle codec=raw":                "legal are little and big",
		"udp dport=1 dport=2 codec=raw":             "twice",
		"udp colour=1 codec=raw":                    "no such key",
		"udp dport codec=raw":                       "key=value",
		"udp offset=70000 type=float32 codec=bfp16": "0 to 65535",
	} {
		if _, err := ParseRule(text); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: %v, want something about %q", text, err, say)
		}
	}
}

func TestOptionsRefused(t *testing.T) {
	emit := func(Side, int) []byte { return nil }
	good := mustRule(t, gradRule)
	for i, o := range []Options{
		{},
		{Emit: emit, HostFrame: 100},
		{Emit: emit, WireFrame: 1 << 16},
		{Emit: emit, Hold: -1},
		{Emit: emit, DeadAfter: 1},
		{Emit: emit, Rules: []Rule{{}}},
		{Emit: emit, Rules: make([]Rule, MaxRules+1)},
		{Emit: emit, Rules: []Rule{{CodecAt: NoByte, Codec: good.Codec, Offset: -1}}},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("options %d are taken", i)
		}
	}
	if _, err := New(Options{Emit: emit, Rules: []Rule{good}}); err != nil {
		t.Error(err)
	}
}
