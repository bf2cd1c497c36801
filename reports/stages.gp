# stages.gp - the error of every stage along the forward pass: chained, alone (isolated) and the limit, with the first
# divergence marked.
# Usage: gnuplot -d -e "data='stages.dat'; out='stages.svg'" reports/stages.gp      (title='...' is optional)
# Blocks of the data, each named by the comment before it: names (stage, y, label), chained, isolated, envelope and failed
# (stage, relative L2), not-finite, borders and groups (layers), first and first-name-left or first-name-right. An error
# of zero stands on the floor 1e-12; a value that is not finite stands at the ceiling 1e1.
if (!exists("data")) data = "reports/out/stages.dat"
if (!exists("out")) out = "reports/out/stages.svg"
if (!exists("title")) title = "Error of each stage, in the order of the forward pass"
set terminal svg size 960,520 dynamic noenhanced standalone font "sans-serif,15" background rgb "white"
set output out
set title title
set logscale y
set yrange [2e-13:2e2]
set ytics ("bit-equal" 1e-12, "1e-10" 1e-10, "1e-8" 1e-8, "1e-6" 1e-6, "1e-4" 1e-4, "1e-2" 1e-2, "1" 1, "not finite" 10)
set ylabel "relative L2 error against float64" offset -0.5,0
set grid ytics lc rgb "#9a9a9a" lw 0.5 dt 3
stats data index "names" using 1 nooutput name "S"
set xrange [-0.7:S_max + 0.7]
set tmargin 2.6
set bmargin 7
set xtics rotate by 90 right font ",10" scale 0.4 nomirror
set lmargin 13
set rmargin 2
set key at graph 0.5, screen 0.01 center bottom horizontal Left reverse samplen 2 width -2 font ",13"
plot data index "names" using 1:(NaN):xtic(3) notitle, \
     data index "borders" using 1:2 with lines lc rgb "#9a9a9a" lw 1 notitle, \
     data index "groups" using 1:2:3 with labels center font ",13" notitle, \
     data index "first" using 1:2 with lines lc rgb "#d55e00" lw 2 dt 2 notitle, \
     data index "first-name-left" using 1:2:3 with labels right offset -1,0 tc rgb "#d55e00" notitle, \
     data index "first-name-right" using 1:2:3 with labels left offset 1,0 tc rgb "#d55e00" notitle, \
     data index "envelope" using 1:2 with lines lc rgb "#e69f00" lw 2 title "limit", \
     data index "isolated" using 1:2 with points lc rgb "#009e73" pt 8 ps 0.7 title "alone", \
     data index "chained" using 1:2 with linespoints lc rgb "#0072b2" lw 1.6 pt 7 ps 0.4 title "chained", \
     data index "failed" using 1:2 with points lc rgb "#d55e00" pt 6 ps 1 lw 2 title "outside its limit", \
     data index "not-finite" using 1:2 with points lc rgb "#d55e00" pt 2 ps 1 lw 2 title "not finite"
