package captures

import (
	"path/filepath"

	"github.com/gopacket/gopacket"
)

// Files are the captures of testdata/captures, which testdata/captures/README.md describes, and of testdata/switchml,
// by their names below testdata.
func Files() []string {
	return []string{
		"switchml/hello-64el-w0.pcap", "switchml/hello-64el-w1.pcap", "switchml/hello-256el-w0.pcap", "switchml/hello-256el-w1.pcap",
		"captures/native.pcap", "captures/accl.pcap", "captures/ring.pcap", "captures/bump.pcap",
	}
}

// Path is where a file of Files is. It is found as Dir is.
func Path(name string) (string, error) {
	dir, err := Dir()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(dir), filepath.FromSlash(name)), nil
}

// Frames reads all frames of a file of Files.
func Frames(name string) ([][]byte, error) {
	path, err := Path(name)
	if err != nil {
		return nil, err
	}
	var frames [][]byte
	err = packets(path, func(frame []byte, _ gopacket.CaptureInfo) error {
		frames = append(frames, frame)
		return nil
	})
	return frames, err
}
