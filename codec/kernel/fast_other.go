//go:build !amd64

package kernel

// There is no assembly here: the vector level is always off and none of these
// is reached.

func encodeFast(Format, []byte, []byte, []float32) int { return 0 }
func decodeFast(Format, []float32, []byte, []byte) int { return 0 }
func addFast(Format, []float32, []byte, []byte) int    { return 0 }
func encodeFP16Fast([]byte, []float32) int             { return 0 }
func decodeFP16Fast([]float32, []byte) int             { return 0 }
func encodeBF16Fast([]byte, []float32) int             { return 0 }
func decodeBF16Fast([]float32, []byte) int             { return 0 }
func philoxFast([]uint32, *Philox) int                 { return 0 }
func maxAbsFast([]float32) (uint32, int)               { return 0, 0 }
func sumSquaresFast([]float32, *[8]float64) int        { return 0 }
func roundInt8Fast([]byte, []float32, float32) int     { return 0 }
func scaleInt8Fast([]float32, []byte, float32) int     { return 0 }
func stochasticInt8Fast([]byte, []float32, float32, *Philox) int {
	return 0
}
func hadamardFast([]float32) bool         { return false }
func flipSignsFast([]float32, *[4]uint32) {}
func roundTableFast([]byte, []float32, float32, *Table, *Philox) int {
	return 0
}
func addTableFast([]byte, []byte, *Table) int                          { return 0 }
func affineUint8Fast([]float32, []byte, float32, float32, float32) int { return 0 }
func putFloatsFast([]byte, []float32) int                              { return 0 }
func getFloatsFast([]float32, []byte) int                              { return 0 }
func quantiseInt32Fast([]int32, []float32, float64, float64) int       { return 0 }
func dequantiseInt32Fast([]float32, []int32, float64) int              { return 0 }
