package config

import "fmt"

// nearest names the known word that is most like a misspelt one, as the end of a sentence.
func nearest(word string, known []string) string {
	best, least := "", 1+len(word)/2
	for _, k := range known {
		if d := distance(word, k); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ": print-config shows all"
	}
	return fmt.Sprintf(": did you mean %s?", best)
}

// distance is how many letters must be put in, taken out or changed, or pairs of neighbours swapped (Damerau's distance,
// where no letter is touched twice).
func distance(a, b string) int {
	before, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			change := above[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, row[j]+1, above[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, above, row = above, row, before
	}
	return above[len(b)]
}
