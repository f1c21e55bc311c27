module fails

go 1.26
