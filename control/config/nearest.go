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

// distance is Levenshtein's: how many letters must be put in, taken out or changed.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
