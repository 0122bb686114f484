module cistern.io/tests/gofakes3

go 1.25.0

require github.com/johannesboyne/gofakes3 v1.2.0
