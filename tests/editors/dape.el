;;; -*- lexical-binding: t -*-
;; Drives Emacs with dape through a session, as a user would: `dape-configs' is extended by the guide's lines.
;; In the environment: PROGRAM, LINE (of the breakpoint), CONFIGURATION (those lines, a file), REPORT (a file).

(require 'dape)

(defun drive-tell (&rest words)
  (write-region (concat (mapconcat (lambda (word) (format "%s" word)) words " ") "\n") nil (getenv "REPORT") 'append))

(defun drive-wait (what condition)
  "Let Emacs work until CONDITION returns something, and return that."
  (let ((until (+ (float-time) (string-to-number (getenv "SECONDS")))) value)
    (while (not (setq value (funcall condition)))
      (when (> (float-time) until) (error "Waited for %s" what))
      (accept-process-output nil 0.02))
    value))

(defun drive-frame ()
  "The frame of a stop, nil while the program runs."
  (when-let* ((conn (dape--live-connection 'stopped t)))
    (dape--current-stack-frame conn)))

(defun drive-variable (name)
  "What the adapter tells of a variable of the first scope, as dape's window of variables asks for it."
  (let* ((conn (dape--live-connection 'stopped))
         (scope (car (drive-wait "scopes" (lambda () (plist-get (drive-frame) :scopes)))))
         (found nil))
    (dape--variables conn scope (lambda (&rest _) (setq found t)))
    (drive-wait "variables" (lambda () found))
    (plist-get (seq-find (lambda (one) (equal (plist-get one :name) name)) (plist-get scope :variables)) :value)))

(defun drive ()
  (load (getenv "CONFIGURATION") nil t)
  (find-file (getenv "PROGRAM"))
  (goto-char (point-min))
  (forward-line (1- (string-to-number (getenv "LINE"))))
  (dape-breakpoint-toggle)
  (let ((config (dape--config-eval 'dynamo nil)))
    (dape config))
  (let* ((frame (drive-wait "a stop" #'drive-frame))
         (line (plist-get frame :line)))
    (drive-tell "stopped" line (plist-get frame :name) (drive-variable "y"))
    (call-interactively #'dape-next)
    (drive-wait "a step" (lambda () (when-let* ((now (drive-frame))) (/= line (plist-get now :line)))))
    (drive-tell "stepped" (plist-get (drive-frame) :line)))
  (call-interactively #'dape-continue)
  (drive-wait "the end" (lambda () (not (dape--live-connection 'last t))))
  (drive-tell "ended"))

(condition-case problem
    (drive)
  (error (drive-tell "problem" problem)
         (drive-tell (with-current-buffer "*Messages*" (buffer-string)))))
(kill-emacs)
