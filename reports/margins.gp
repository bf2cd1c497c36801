# margins.gp - what an error can do to the tokens: per drafted row, how far the first choice leads the second (logit top-1
# minus top-2 of the reference) against the largest error of that row's logits. Right of the line, where twice the error
# exceeds the lead, the choice can flip.
# Usage: gnuplot -d -e "data='margins.dat'; out='margins.svg'" reports/margins.gp      (title='...' is optional)
# Blocks of the data: same and flipped (error, lead, row), not-finite (x to draw at, lead, row), limit (error, lead). An error
# or a lead of zero stands on the floor 1e-12.
if (!exists("data")) data = "reports/out/margins.dat"
if (!exists("out")) out = "reports/out/margins.svg"
if (!exists("title")) title = "Whether the error can change a token"
set terminal svg size 960,460 dynamic noenhanced standalone font "sans-serif,15" background rgb "white"
set output out
set title title
set logscale xy
set xrange [2e-13:1e4]
set yrange [2e-13:1e4]
set xtics ("bit-equal" 1e-12, "1e-9" 1e-9, "1e-6" 1e-6, "1e-3" 1e-3, "1" 1, "not finite" 1e3)
set ytics ("tie" 1e-12, "1e-9" 1e-9, "1e-6" 1e-6, "1e-3" 1e-3, "1" 1, "1e3" 1e3)
set grid lc rgb "#9a9a9a" lw 0.5 dt 3
set xlabel "largest error of the row"
set ylabel "lead: top-1 minus top-2" offset -0.5,0
set lmargin 12
set rmargin 4
set key at graph 0.5, screen 0.01 center bottom horizontal Left reverse samplen 2 width -2 font ",13"
set bmargin 5.2
plot data index "limit" using 1:2 with lines lc rgb "#e69f00" lw 2 title "twice the error = the lead", \
     data index "same" using 1:2 with points lc rgb "#0072b2" pt 7 ps 0.8 title "same token", \
     data index "flipped" using 1:2 with points lc rgb "#d55e00" pt 9 ps 1.3 title "another token", \
     data index "flipped" using 1:2:3 with labels left offset 1,0 font ",12" notitle, \
     data index "not-finite" using 1:2 with points lc rgb "#d55e00" pt 2 ps 1 lw 2 title "not finite"
